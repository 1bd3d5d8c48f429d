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
	mu   sync.Mutex
	ttls map[string]time.Duration // zero for a type that is not to be learned again
	text atomic.Pointer[string]
}

// Learn adds a type with the TTL of its leases, unless it was forgotten. A type whose handlers have
// different TTLs is forgotten.
func (t *Types) Learn(name string, ttl time.Duration) {
	if known := t.text.Load(); known != nil && strings.Contains(*known, entry(name, ttl)) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if before, known := t.ttls[name]; known {
		if before != ttl { // two handlers of the type differ, or it was forgotten
			t.forget(name)
		}
		return
	}
	if len(t.ttls) >= mostTypes || ttl%time.Millisecond != 0 {
		return
	}
	if len(name) > 127 || strings.ContainsAny(name, "|=") { // more than the script reads
		return
	}
	if t.ttls == nil {
		t.ttls = map[string]time.Duration{}
	}
	t.ttls[name] = ttl
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
	if t.ttls[name] > 0 {
		t.ttls[name] = 0
		t.write()
	}
}

// String returns the types as the script reads them: "|type=ttl|type=ttl|" with TTLs in ms; empty for none.
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
	return t.ttls[name]
}

func entry(name string, ttl time.Duration) string {
	return "|" + name + "=" + strconv.FormatInt(ttl.Milliseconds(), 10) + "|"
}

// write makes the text anew. The caller holds the mutex.
func (t *Types) write() {
	var b strings.Builder
	for name, ttl := range t.ttls {
		if ttl > 0 {
			b.WriteString(strings.TrimSuffix(entry(name, ttl), "|"))
		}
	}
	if b.Len() > 0 {
		b.WriteByte('|')
	}
	text := b.String()
	t.text.Store(&text)
}
