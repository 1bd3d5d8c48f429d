package etcdlock

import (
	"context"
	"maps"
	"math/bits"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/railtoken/railtoken/internal/leasing"
)

// marks subscribes to releases: while the notify key of a business key exists, its releaser is told that callers wait.
// An etcd lease deletes it. A process writes the mark of a key at most once per Notify, and its marks of about the same
// duration share a lease.
type marks struct {
	leases *leases

	mu     sync.Mutex
	shared map[int64]sharedLease // by the shortest duration of its marks, in seconds
	placed map[string]time.Time  // until when a business key is marked
	room   int                   // the size of placed at which ended marks are removed
}

// sharedLease is an etcd lease of marks.
type sharedLease struct {
	id    clientv3.LeaseID
	until time.Time
}

func newMarks(l *leases) *marks {
	return &marks{leases: l, shared: map[int64]sharedLease{}, placed: map[string]time.Time{}}
}

// arePlaced reports whether all of the keys are marked for a time.
func (m *marks) arePlaced(keys []string, notify time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range keys {
		if leasing.Until(m.placed[key]) < notify {
			return false
		}
	}
	return true
}

// lease returns an etcd lease that lasts for a time.
func (m *marks) lease(ctx context.Context, notify time.Duration) (sharedLease, error) {
	class := int64(1) << bits.Len64(uint64(max(secondsOf(notify)-1, 0)))
	m.mu.Lock()
	lease := m.shared[class]
	m.mu.Unlock()
	if leasing.Until(lease.until) >= notify {
		return lease, nil
	}
	granted, seconds, err := m.leases.grant(ctx, 2*class)
	if err != nil {
		return sharedLease{}, err
	}
	lease = sharedLease{granted.id, granted.renewed.Add(time.Duration(seconds) * time.Second)}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shared[class] = lease
	return lease, nil
}

// forget removes a lease that etcd does not know any more.
func (m *marks) forget(lease sharedLease) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.shared, func(_ int64, l sharedLease) bool { return l.id == lease.id })
}

// firstMarks is how many marks are remembered before ended ones are removed.
const firstMarks = 64

// place remembers that keys are marked.
func (m *marks) place(keys []string, until time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.placed) >= max(m.room, firstMarks) {
		maps.DeleteFunc(m.placed, func(_ string, until time.Time) bool { return leasing.Until(until) <= 0 })
		m.room = 2 * len(m.placed)
	}
	for _, key := range keys {
		m.placed[key] = until
	}
}
