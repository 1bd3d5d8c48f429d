package line

import (
	"sync"
	"time"
)

// owedLook is the time between two looks for owed wakes.
const owedLook = 400 * time.Millisecond

// idleLooks knows when the looks of idle servers, which cost nothing more for it, have found that no wake is owed. It is safe
// for concurrent use.
type idleLooks struct {
	mu    sync.Mutex
	asked time.Time // when the last one was sent
	found time.Time // when one has found that no wake was owed
}

// due reports whether the next look of an idle server is for owed wakes, too. It is, twice in the time between two looks.
func (l *idleLooks) due() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Sub(l.asked) < owedLook/2 {
		return false
	}
	l.asked = now
	return true
}

// none notes that no wake is owed.
func (l *idleLooks) none() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.found = time.Now()
}

// suffice reports whether such a look has just found that no wake is owed.
func (l *idleLooks) suffice() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.found) < owedLook
}
