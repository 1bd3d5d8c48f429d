package fused

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
// that are recorded with them, in no order. The zero value has none. It is safe for concurrent use.
type Types struct {
	mu    sync.Mutex
	types map[string]known
	text  atomic.Pointer[string]
}

// known is what is known of a type.
type known struct {
	ttl  time.Duration // of its leases; zero for a type that is not to be learned again
	wait Wait
}

// Wait says which tasks of a type the script that fetches them parks, and how they wait. The zero value leaves all of
// them to their server.
type Wait struct {
	// Behind is how many tasks must be parked on a key before another one is parked by the script.
	Behind int
	// After is how long after the end of the lock the task that is next in line tries again by itself, but Most from its
	// park at the latest.
	After, Most time.Duration
}

// Learn adds a type with the TTL of its leases, and how its tasks wait, unless the type was forgotten. A type whose
// handlers have different TTLs is forgotten; if only their Waits differ, it has none from then on.
func (t *Types) Learn(name string, ttl time.Duration, wait Wait) {
	if text := t.text.Load(); text != nil && strings.Contains(*text, entry(name, known{ttl, wait})) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if before, again := t.types[name]; again {
		switch {
		case before.ttl != ttl: // two handlers of the type differ, or it was forgotten
			t.forget(name)
		case before.wait != wait && before.wait != Wait{}:
			t.types[name] = known{ttl: ttl}
			t.write()
		}
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
	t.types[name] = known{ttl, wait}
	t.write()
}

// Forget removes a type for good.
func (t *Types) Forget(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget(name)
}

// forget removes a type. The caller holds the mutex.
func (t *Types) forget(name string) {
	if t.types[name].ttl > 0 {
		t.types[name] = known{}
		t.write()
	}
}

// String returns the types as the scripts read them: see grant.lua of package intake. It is empty for none.
func (t *Types) String() string {
	if text := t.text.Load(); text != nil {
		return *text
	}
	return ""
}

// TTL returns that of a type, zero if it is not one of them.
func (t *Types) TTL(name string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.types[name].ttl
}

func entry(name string, k known) string {
	ms := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	text := "|" + name + "=" + ms(k.ttl)
	if k.wait != (Wait{}) {
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
