package intake

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/rediswire"
)

// A master that does not answer one place is not asked for others, either.
func TestPlacesOfAMasterAreAwayTogether(t *testing.T) {
	t.Parallel()
	const half = 8192
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{"127.0.0.1:1"},
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{
				{Start: 0, End: half - 1, Nodes: []redis.ClusterNode{{Addr: "127.0.0.1:1"}}},
				{Start: half, End: 2*half - 1, Nodes: []redis.ClusterNode{{Addr: "127.0.0.1:2"}}},
			}, nil
		},
	})
	t.Cleanup(func() { _ = client.Close() })
	l, err := lanes.New(16)
	if err != nil {
		t.Fatal(err)
	}
	in := New(client, Options{Queues: map[string]int{"orders": 2, "audit": 1}, Slots: 4, Lanes: l})
	first := in.places[l.Queue("orders", 3)]
	away := map[int]bool{}
	for _, i := range in.turning.beside(first) {
		away[i] = true
	}
	for queue, p := range in.places {
		if low := rediswire.Slot(asynqwire.Pending(queue)) < half; away[p.number] != low {
			t.Errorf("%s is on the master of lane 3: %v, and away: %v", queue, low, away[p.number])
		}
	}
	if !away[first.number] || len(away) < 8 {
		t.Errorf("away are %v", away)
	}

	// Tasks that wait for a call are no reason to ask it more than once at a time.
	others := []*place{in.places[l.Queue("orders", 1)], in.places[l.Queue("orders", 2)]}
	in.turning.failed(first, asked{}, context.DeadlineExceeded)
	if queries := in.turning.pick(others, 4); len(queries) != 0 {
		t.Errorf("%d places are asked that rest", len(queries))
	}
	in.turning.turns.all[others[0].number].rests, in.turning.turns.all[others[1].number].rests = time.Time{}, time.Time{}
	queries := in.turning.pick(others, 4)
	if len(queries) != 1 || !queries[0].asks.probe {
		t.Fatalf("%d places are asked beside one that does not answer: %+v", len(queries), queries)
	}
	in.turning.leave(first) // its call was before
	if more := in.turning.pick(others, 4); len(more) != 0 {
		t.Errorf("%d places are asked beside a probe", len(more))
	}
	in.turning.leave(queries[0].place)
	if more := in.turning.pick(others, 4); len(more) != 1 {
		t.Errorf("%d places are asked after the probe", len(more))
	}
}
