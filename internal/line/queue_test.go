package line_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/line"
)

func TestClientsThatCannotKeepTasksAreRefused(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]redis.UniversalClient{
		"a ring":                      redis.NewRing(&redis.RingOptions{}),
		"a cluster through replicas":  redis.NewClusterClient(&redis.ClusterOptions{ReadOnly: true}),
		"a cluster by latency":        redis.NewClusterClient(&redis.ClusterOptions{RouteByLatency: true}),
		"a cluster through any nodes": redis.NewClusterClient(&redis.ClusterOptions{RouteRandomly: true}),
	} {
		t.Cleanup(func() { _ = client.Close() })
		if _, err := line.New(client, line.Options{}); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// counter counts round trips.
type counter struct{ n atomic.Int64 }

func (c *counter) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmd)
	}
}

func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmds)
	}
}

func TestParkAndWakeAreOneRoundTripOnOneNodeAndFewOnACluster(t *testing.T) {
	t.Parallel()
	const rounds = 50
	onEach(t, func(t *testing.T, r *rig) {
		want := map[string]int64{
			"park alone": 1, "park": 1, "park again": 1, "wake": 1, "wake as a leaver": 1,
			"wake one": 1,
		}
		if _, ok := r.Client.(*redis.ClusterClient); ok {
			// While others wait, one of them in the background, for the next in line.
			want = map[string]int64{
				"park": 4, "park again": 4, "park alone": 3, "wake": 6, "wake as a leaver": 8,
				"wake one": 6,
			}
		}
		client := shared.clientOf(t, r.on)
		var trips counter
		if r.on == "cluster" {
			if err := line.LoadSteps(t.Context(), client); err != nil {
				t.Fatal(err)
			}
		}
		client.AddHook(&trips)
		leaver := r.Delayed("leaver")
		for round := range rounds { // in the first the scripts are loaded
			queue := r.newQueue(client, line.Options{})
			a, b, c, d, e := r.Delayed("a"), r.Delayed("b"), r.Delayed("c"), r.Delayed("d"), r.begun("e")
			park := func(task line.Task) {
				if _, err := queue.Park(t.Context(), r.Begin(task), r.key("k"),
					line.ParkOptions{RetryAfter: time.Hour}); err != nil {
					t.Error(err)
				}
			}
			wake := func(opts line.WakeOptions) {
				if woken, err := queue.Wake(t.Context(), r.key("k"), opts); err != nil || len(woken.Tasks) != 1 {
					t.Errorf("woke %+v, %v", woken, err)
				}
			}
			r.Park(leaver, "k")
			r.Begin(leaver)
			var woke time.Time
			took := map[string]int64{}
			for _, do := range []struct {
				name string
				call func()
			}{
				{"park alone", func() {
					if _, err := queue.Park(t.Context(), e, r.key(fmt.Sprint("alone", round)),
						line.ParkOptions{}); err != nil {
						t.Error(err)
					}
				}},
				{"park", func() { park(a) }},
				{"park again", func() { park(a) }},
				{"", func() { park(b) }},
				{"", func() { park(c) }},
				{"", func() { park(d) }},
				{"wake as a leaver", func() { woke = time.Now(); wake(line.WakeOptions{Leaver: leaver}) }},
				{"wake one", func() {
					if woken, err := queue.WakeTask(t.Context(), r.key("k"), c); err != nil || woken.First() != c {
						t.Errorf("woke %+v, %v", woken, err)
					}
				}},
				{"wake", func() { wake(line.WakeOptions{}) }},
			} {
				before := trips.n.Load()
				do.call()
				queue.Settle()
				if do.name != "" {
					took[do.name] = trips.n.Load() - before
				}
			}
			quick := time.Since(woke) < line.FollowUpFirst // else the check of a wake may be among them
			if err := queue.Close(); err != nil {
				t.Fatal(err)
			}
			for _, task := range []line.Task{a, b, c, d, e} {
				r.Remove(task)
			}
			if round == 0 || !quick {
				continue
			}
			if !maps.Equal(took, want) {
				t.Errorf("round trips: %v, want %v", took, want)
			}
			return
		}
		t.Errorf("none of %d rounds ended before a wake is checked", rounds)
	})
}
