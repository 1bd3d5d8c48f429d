package broker

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// A notice of a lane is heard on its master: through the bus of the Cluster it may take 40 ms more.
func TestLanesAreFollowedOnTheirMasters(t *testing.T) {
	t.Parallel()
	l := newLanes(t, 16)
	c := redistest.StartCluster(t, 3)
	client := c.Client(t)
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	heard := make(chan string, 100)
	m := newMasters(client)
	n := newNotices(m, l.Count(), func(queue string) { heard <- queue })
	t.Cleanup(func() {
		m.close()
		n.close()
	})
	queues := inAllLanes(l, "orders")
	// masters returns the lanes of each master, as the client knows them.
	masters := func() map[string][]int {
		all := map[string][]int{}
		for _, g := range m.groups(len(queues), func(i int) string { return "{" + queues[i] + "}" }) {
			all[g.master] = g.at
		}
		return all
	}
	areFollowed := func() {
		t.Helper()
		of := masters()
		for master, lanes := range of {
			n.follow(lanes, master, "{"+queues[lanes[0]]+"}")
		}
		n.tidy()
		for _, s := range c.Nodes() {
			for began := time.Now(); !slices.Equal(followedOn(t, s, l.Count()), of[s.Addr()]); <-time.After(5 * time.Millisecond) {
				if time.Since(began) > patience {
					t.Fatalf("on %s the lanes %v are followed, want %v", s.Addr(), followedOn(t, s, l.Count()), of[s.Addr()])
				}
			}
		}
	}
	areFollowed()
	areFollowed() // changes nothing

	from, to := c.Nodes()[0], c.Nodes()[1]
	moved := masters()[from.Addr()]
	for left := 1; left >= 0; left-- { // all but one move, and then that one
		for _, lane := range masters()[from.Addr()][left:] {
			c.MoveSlot(t, l.Slot(lane), to)
		}
		client.ReloadState(t.Context())
		for began := time.Now(); len(masters()[from.Addr()]) != left; <-time.After(5 * time.Millisecond) {
			if time.Since(began) > patience {
				t.Fatal("the client does not learn of the moves")
			}
		}
		areFollowed()
	}
	if len(n.on) != 2 {
		t.Errorf("%d masters are followed, want the two that have lanes", len(n.on))
	}
	direct := redis.NewClient(&redis.Options{Addr: to.Addr()})
	t.Cleanup(func() { _ = direct.Close() })
	for _, lane := range moved {
		direct.Publish(t.Context(), lanes.ReadyChannel(lane), queues[lane])
		if queue := redistest.Receive(t, heard, patience); queue != queues[lane] {
			t.Errorf("heard of %s, want %s", queue, queues[lane])
		}
	}
}

// A server leaves several masters that hang as soon as one of them.
func TestNoticesOfMastersThatHangEndTogether(t *testing.T) {
	t.Parallel()
	l := newLanes(t, 16)
	c := redistest.StartCluster(t, 3)
	client := c.Client(t, func(o *redis.ClusterOptions) { o.ReadTimeout = 5 * time.Second })
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	m := newMasters(client)
	n := newNotices(m, l.Count(), func(string) {})
	queues := inAllLanes(l, "orders")
	gs := m.groups(len(queues), func(i int) string { return "{" + queues[i] + "}" })
	for _, s := range c.Nodes() { // they hang before they are followed
		s.Pause()
		t.Cleanup(s.Resume)
	}
	for _, g := range gs {
		n.follow(g.at, g.master, "{"+queues[g.at[0]]+"}")
	}
	time.Sleep(200 * time.Millisecond)
	m.close()
	at := time.Now()
	n.close()
	if took := time.Since(at); took > 1500*time.Millisecond {
		t.Errorf("close takes %v", took)
	}
}

// A lane that moves after its master was asked for is not followed on the new one in the name of the old one, whose lanes would be deaf
// once the new one leaves the Cluster.
func TestALaneThatHasJustMovedIsFollowedInTheNextRound(t *testing.T) {
	t.Parallel()
	l := newLanes(t, 16)
	client := redistest.StartCluster(t, 3).Client(t)
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	m := newMasters(client)
	n := newNotices(m, l.Count(), func(string) {})
	t.Cleanup(func() {
		m.close()
		n.close()
	})
	n.follow([]int{0}, "127.0.0.1:1", "{"+l.Queue("orders", 0)+"}")
	n.tidy()
	if len(n.on) > 0 || n.lanes[0].drop != nil {
		t.Error("it is followed on another master")
	}
}

// followedOn returns the lanes that somebody follows on a server.
func followedOn(t *testing.T, s *redistest.Server, count int) (all []int) {
	t.Helper()
	direct := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer direct.Close()
	for lane := range count {
		channel := lanes.ReadyChannel(lane)
		n, err := direct.PubSubNumSub(t.Context(), channel).Result()
		if err != nil {
			t.Fatal(err)
		}
		if n[channel] > 0 {
			all = append(all, lane)
		}
	}
	return all
}
