package locking

import (
	"maps"
	"slices"
	"sync"
)

// lateReleases reports keys that were released after their caller had its answer: see [lockaccess.Access]. Without it,
// tasks that were parked because of such keys would not be woken. The zero value is ready for use.
type lateReleases struct {
	mu    sync.Mutex
	last  int
	freed map[int]func(keys []string)
}

func (l *lateReleases) follow(freed func(keys []string)) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.freed == nil {
		l.freed = map[int]func([]string){}
	}
	l.last++
	n := l.last
	l.freed[n] = freed
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.freed, n)
	}
}

// report reports keys to all that follow, and then returns.
func (l *lateReleases) report(keys []string) {
	l.mu.Lock()
	freed := slices.Collect(maps.Values(l.freed))
	l.mu.Unlock()
	for _, f := range freed {
		f(slices.Clone(keys))
	}
}
