package broker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// awayAfter is how long a call to several masters waits for one of them.
const awayAfter = 500 * time.Millisecond

// errLate stands for the answer of a master that has not come within awayAfter.
var errLate = errors.New("the master has not answered yet")

// group is what some keys have in common: their master, by its address, and their positions.
type group struct {
	master string
	at     []int
}

// grouped groups n keys by their masters, in the order of their first keys.
func grouped(n int, masterOf func(i int) string) (all []group) {
	of := map[string]int{}
	for i := range n {
		master := masterOf(i)
		at, ok := of[master]
		if !ok {
			at = len(all)
			of[master] = at
			all = append(all, group{master: master})
		}
		all[at].at = append(all[at].at, i)
	}
	return all
}

// errand is a purpose of calls, and the master that they are for.
type errand struct{ purpose, master string }

// masters makes calls to the masters of a Redis Cluster, to each by itself, so that one which does not answer holds up no call to
// another. While a call for a purpose is under way, its master gets no other for that purpose: nothing piles up. It is safe for
// concurrent use.
type masters struct {
	client redis.UniversalClient

	ended   context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu   sync.Mutex // guards what follows, and whether it has ended
	busy map[errand]bool
}

func newMasters(client redis.UniversalClient) *masters {
	m := &masters{client: client, busy: map[errand]bool{}}
	m.ended, m.cancel = context.WithCancel(context.Background())
	return m
}

// groups groups some keys by the masters that have them now. As long as that is not known they are one group.
func (m *masters) groups(n int, key func(i int) string) []group {
	cluster, ok := m.client.(*redis.ClusterClient)
	if !ok {
		return grouped(n, func(int) string { return "" })
	}
	ctx, cancel := context.WithTimeout(m.ended, awayAfter)
	defer cancel()
	known := true // or each key would be a call of its own
	return grouped(n, func(i int) string {
		if !known {
			return ""
		}
		master, err := cluster.MasterForKey(ctx, key(i))
		if err != nil {
			known = false
			return ""
		}
		return master.Options().Addr
	})
}

// of returns a client of the master that has a key, as far as that is known.
func (m *masters) of(ctx context.Context, key string) redis.UniversalClient {
	if cluster, ok := m.client.(*redis.ClusterClient); ok {
		ctx, cancel := context.WithTimeout(ctx, awayAfter)
		defer cancel()
		if master, err := cluster.MasterForKey(ctx, key); err == nil {
			return master
		}
	}
	return m.client
}

// begin makes a call in the background, unless one of the same errand is under way. over is closed at its end.
func (m *masters) begin(e errand, call func(context.Context)) (over <-chan struct{}, begun bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.busy[e] || m.ended.Err() != nil {
		return nil, false
	}
	m.busy[e] = true
	end := make(chan struct{})
	m.running.Go(func() {
		defer func() {
			m.mu.Lock()
			delete(m.busy, e)
			m.mu.Unlock()
			close(end)
		}()
		call(m.ended)
	})
	return end, true
}

// isOver waits until a call is over or a context has ended. It reports whether the call is over.
func isOver(ctx context.Context, over <-chan struct{}) bool {
	select {
	case <-over:
		return true
	default:
	}
	select {
	case <-over:
		return true
	case <-ctx.Done():
		return false
	}
}

// byItself makes a call of a purpose to the master of a key, and waits for it for awayAfter, or not at all while another is under way.
// Then it returns late, as an error, and the call goes on. Without lanes it waits for the call.
func byItself[C redis.Cmder](ctx context.Context, l *laneLook, purpose, key string, late C, call func(context.Context) C) C {
	if l == nil {
		return call(ctx)
	}
	var answer C
	master := l.masters.groups(1, func(int) string { return key })[0].master
	over, begun := l.masters.begin(errand{purpose, master}, func(ctx context.Context) { answer = call(ctx) })
	ctx, cancel := context.WithTimeout(ctx, awayAfter)
	defer cancel()
	if !begun || !isOver(ctx, over) {
		late.SetErr(errLate)
		return late
	}
	return answer
}

// close ends all calls and waits for their ends. None begins any more.
func (m *masters) close() {
	m.mu.Lock()
	m.cancel()
	m.mu.Unlock()
	m.running.Wait()
}
