package colocated

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// mostTypes is how many types of tasks a server tells Redis with each call.
const mostTypes = 32

// Types are the types of tasks whose keys are taken when the tasks are fetched, because their handlers lock the keys
// that are recorded with them. The zero value has none. It is safe for concurrent use.
type Types struct {
	mu    sync.Mutex
	types map[string]known
	text  atomic.Pointer[string]
}

// known is what is known of a type.
type known struct {
	ttl  time.Duration // of its leases; zero while the type is forgotten
	wait Wait

	forgotten int // how often
	left      int // how many correct records in a row there must still be before it is learned again
}

// A type that was forgotten is learned again after relearnFirst correct records in a row, twice as many each time that it
// is forgotten, and relearnMost at most.
const (
	relearnFirst = 16
	relearnMost  = 4096
)

// Wait says which tasks of a type the script that fetches them parks, and how they wait. The zero value leaves all of
// them to their server.
type Wait struct {
	// Behind is how many tasks must be parked on a key before another one is parked by the script.
	Behind int
	// After is how long after the end of the lock the task that is next in line tries again by itself, but Most from its
	// park at the latest.
	After, Most time.Duration
	// Order is how the tasks of a key keep their order, in the words of head.lua of package line; empty if they keep none.
	Order string
}

// none is the Wait of a type whose tasks the script does not park.
func (w Wait) none() Wait { return Wait{Order: w.Order} }

// Learn notes a task of a type whose handler has locked the recorded keys, with the TTL of its leases, and how its tasks
// wait. It adds the type; one that was forgotten only after some such tasks in a row. A type whose handlers have different
// TTLs or orders is forgotten; if only the rest of their Waits differs, none of its tasks is parked from then on.
func (t *Types) Learn(name string, ttl time.Duration, wait Wait) {
	if text := t.text.Load(); text != nil && strings.Contains(*text, entry(name, known{ttl: ttl, wait: wait})) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if before, again := t.types[name]; again {
		switch {
		case before.ttl == 0:
			before.left--
			if before.left <= 0 {
				before.ttl, before.wait = ttl, wait
			}
		case before.ttl != ttl || before.wait.Order != wait.Order: // two handlers of the type differ
			t.forget(name)
			return
		case before.wait != wait && before.wait != before.wait.none():
			before.wait = before.wait.none()
		default:
			return
		}
		t.types[name] = before
		t.write()
		return
	}
	if len(t.types) >= mostTypes || ttl%time.Millisecond != 0 {
		return
	}
	if len(name) > 127 || strings.ContainsAny(name, "|=") { // more than the script reads
		return
	}
	if t.types == nil {
		t.types = map[string]known{}
	}
	t.types[name] = known{ttl: ttl, wait: wait}
	t.write()
}

// Forget removes a type, because the record of a task was wrong, and reports whether it was there. Learn adds it again.
func (t *Types) Forget(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.forget(name)
}

// Doubt notes that the record of a task of a forgotten type was wrong.
func (t *Types) Doubt(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k, ok := t.types[name]; ok && k.ttl == 0 {
		k.left = relearn(k.forgotten)
		t.types[name] = k
	}
}

// forget removes a type. The caller holds the mutex.
func (t *Types) forget(name string) bool {
	k := t.types[name]
	if k.ttl == 0 {
		return false
	}
	t.types[name] = known{forgotten: k.forgotten + 1, left: relearn(k.forgotten + 1)}
	t.write()
	return true
}

// relearn returns how many correct records it takes to learn a type that was forgotten n times.
func relearn(n int) int { return min(relearnFirst<<min(n-1, 16), relearnMost) }

// String returns the types as the scripts read them: see grant.lua of package intake. It is empty for none.
func (t *Types) String() string {
	if text := t.text.Load(); text != nil {
		return *text
	}
	return ""
}

// TTL returns that of a type, zero if it is not one of them, and the order of its tasks.
func (t *Types) TTL(name string) (ttl time.Duration, order string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.types[name].ttl, t.types[name].wait.Order
}

func entry(name string, k known) string {
	ms := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	text := "|" + name + "=" + ms(k.ttl)
	if k.wait.Order != "" {
		text += "/" + k.wait.Order
	}
	if k.wait != k.wait.none() {
		text += "," + ms(k.wait.After) + "," + ms(k.wait.Most) + "," + strconv.Itoa(k.wait.Behind)
	}
	return text + "|"
}

// write makes the text anew. The caller holds the mutex.
func (t *Types) write() {
	var b strings.Builder
	for name, k := range t.types {
		if k.ttl > 0 {
			b.WriteString(strings.TrimSuffix(entry(name, k), "|"))
		}
	}
	if b.Len() > 0 {
		b.WriteByte('|')
	}
	text := b.String()
	t.text.Store(&text)
}
