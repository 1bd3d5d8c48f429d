package broker

import (
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/subscription"
)

// notices hears of queues in lanes that have tasks, on the master of each lane. If a lane moves, what it is told in the meantime comes
// through the bus of the Cluster. It is for one goroutine.
type notices struct {
	masters *masters
	hear    func(queue string) // must not block
	lanes   []followed
	on      map[string]*subscription.Subscription // by the addresses of the masters
}

// followed is where a lane is followed.
type followed struct {
	master string
	drop   func() // nil while it is not followed
}

func newNotices(m *masters, count int, hear func(queue string)) *notices {
	return &notices{masters: m, hear: hear, lanes: make([]followed, count), on: map[string]*subscription.Subscription{}}
}

// follow follows some lanes on their master, which has a key. If that has moved since, they are followed in the next round: a client of
// another master is closed, and hears of nothing, once that leaves the Cluster.
func (n *notices) follow(some []int, master, key string) {
	for _, lane := range some {
		was := n.lanes[lane]
		if was.drop != nil && was.master == master {
			continue
		}
		if n.on[master] == nil {
			client := n.masters.of(n.masters.ended, key)
			if c, ok := client.(*redis.Client); ok && master != "" && c.Options().Addr != master { // it has moved just now
				return
			}
			n.on[master] = subscription.New(client)
		}
		drop, err := n.on[master].Follow(lanes.ReadyChannel(lane), n.hear)
		if err != nil { // it is closed
			return
		}
		n.lanes[lane] = followed{master, drop}
		if was.drop != nil {
			was.drop()
		}
	}
}

// tidy leaves masters that have no lane any more.
func (n *notices) tidy() {
	used := map[string]bool{}
	for _, lane := range n.lanes {
		used[lane.master] = true
	}
	for master, s := range n.on {
		if !used[master] {
			delete(n.on, master)
			go s.Close() // which waits for a connection
		}
	}
}

// close leaves all masters, at the same time: one that hangs takes a while.
func (n *notices) close() {
	var closing sync.WaitGroup
	for _, s := range n.on {
		closing.Go(func() { _ = s.Close() })
	}
	closing.Wait()
}
