package holdings_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/holdings"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// parked is what waits: tasks by their keys, since a time.
type parked struct {
	waiting map[string]int
	since   time.Time
	err     error
}

func (p *parked) Count(context.Context) (n int, err error) {
	for _, tasks := range p.waiting {
		n += tasks
	}
	return n, p.err
}

func (p *parked) Waiting(_ context.Context, keys []string) (map[string]holdings.Point, error) {
	found := map[string]holdings.Point{}
	for _, key := range keys {
		found[key] = holdings.Point{}
		if n := p.waiting[key]; n > 0 {
			found[key] = holdings.Point{Waiting: n, Oldest: time.Since(p.since)}
		}
	}
	return found, nil
}

func (p *parked) Awaited(context.Context, int) (keys []string, err error) {
	for key := range p.waiting {
		keys = append(keys, key)
	}
	return keys, nil
}

// history returns the hour until a time, the current minute first.
func history(t *testing.T, client redis.UniversalClient, now time.Time) []holdings.Minute {
	t.Helper()
	hour, err := holdings.ReadHistory(t.Context(), client, now, holdings.Minutes)
	if err != nil || len(hour) != holdings.Minutes {
		t.Fatalf("%d minutes, error %v", len(hour), err)
	}
	slices.Reverse(hour)
	return hour
}

// leased is a lease without a fencing token.
type leased struct{}

func (leased) FenceOf(context.Context, string) (int64, error) { return 0, nil }

func wants(t *testing.T, what string, want holdings.Point, known bool) func(holdings.Point, bool) {
	return func(got holdings.Point, ok bool) {
		t.Helper()
		if got != want || ok != known {
			t.Errorf("%s: %+v (known: %v), want %+v (%v)", what, got, ok, want, known)
		}
	}
}

func TestReportsOfAllWorkersMakeOneHistory(t *testing.T) {
	t.Parallel()
	t.Run("one Redis", func(t *testing.T) { t.Parallel(); reportsMakeOneHistory(t, redistest.Start(t).Client(t)) })
	t.Run("Cluster", func(t *testing.T) { t.Parallel(); reportsMakeOneHistory(t, redistest.StartCluster(t, 3).Client(t)) })
}

func reportsMakeOneHistory(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	at := time.Now()
	for i, first := range []bool{true, false} {
		begun, err := holdings.Remember(t.Context(), client, at, holdings.Point{
			Waiting: 5 - i, Oldest: time.Duration(3+i) * time.Second, Holds: 10, Wakes: 2, Refusals: 3,
		}, map[string]holdings.Point{"order:1": {Waiting: 2, Oldest: time.Second, Holds: 1, Wakes: 1, Refusals: 2}}, false)
		if err != nil || begun != first {
			t.Errorf("report %d has begun the minute: %v, error %v", i, begun, err)
		}
		if ttl := client.PTTL(t.Context(), holdings.HistoryKey(at)).Val(); ttl < 60*time.Minute || ttl > 65*time.Minute {
			t.Errorf("after report %d a minute is kept for %v", i, ttl)
		}
	}
	hour := history(t, client, at)
	last := hour[0]
	wants(t, "all", holdings.Point{Waiting: 5, Oldest: 4 * time.Second, Holds: 20, Wakes: 4, Refusals: 6}, true)(last.All())
	wants(t, "a key", holdings.Point{Waiting: 2, Oldest: time.Second, Holds: 2, Wakes: 2, Refusals: 4}, true)(last.Of("order:1"))
	wants(t, "another key", holdings.Point{Holds: -1}, true)(last.Of("order:2"))
	wants(t, "the minute before", holdings.Point{}, false)(hour[1].All())
	wants(t, "a key in the minute before", holdings.Point{Holds: -1}, false)(hour[1].Of("order:1"))
}

// Of a key that a full minute names all reports count, and of the others nothing is known.
func TestAMinuteNamesThreeHundredKeys(t *testing.T) {
	t.Parallel()
	client, at := redistest.Start(t).Client(t), time.Now()
	many := map[string]holdings.Point{}
	for i := range 300 {
		many[fmt.Sprint("order:", i)] = holdings.Point{Holds: 1}
	}
	for n, c := range []struct {
		keys  map[string]holdings.Point
		known bool
	}{{many, true}, {many, true}, {map[string]holdings.Point{"another": {Holds: 1}}, false}, {many, false}} {
		if _, err := holdings.Remember(t.Context(), client, at, holdings.Point{Holds: 1}, c.keys, false); err != nil {
			t.Fatal(err)
		}
		minute := history(t, client, at)[0]
		wants(t, fmt.Sprintf("after report %d, another key", n), holdings.Point{Holds: -1}, c.known)(minute.Of("another"))
	}
	minute := history(t, client, at)[0]
	wants(t, "a key", holdings.Point{Holds: 3}, true)(minute.Of("order:1"))
	wants(t, "all keys", holdings.Point{Holds: 4}, true)(minute.All())

	// A build that names more keys has written to the minute.
	client.HSet(t.Context(), holdings.HistoryKey(at), "keys", 400)
	if _, err := holdings.Remember(t.Context(), client, at, holdings.Point{Holds: 1}, many, false); err != nil {
		t.Fatal(err)
	}
	minute = history(t, client, at)[0]
	wants(t, "a key of a fuller minute", holdings.Point{Holds: 4}, true)(minute.Of("order:1"))
	wants(t, "all keys of a fuller minute", holdings.Point{Holds: 5}, true)(minute.All())
}

func TestAMinuteWithoutReportsIsAGap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Virtual(t)
		set, waits := &holdings.Set{}, &parked{waiting: map[string]int{}}
		start := func() *holdings.Reporter {
			r := holdings.New(client, set, holdings.Worker{}, holdings.Options{
				Store: func(context.Context) (string, bool) { return "x", true }, Parked: waits,
			})
			starts(t, r, false)
			return r
		}
		worker := start()
		time.Sleep(2*time.Minute + 30*time.Second) // nothing happens
		worker.Close()
		time.Sleep(3 * time.Minute) // nobody works
		worker = start()
		defer worker.Close()
		synctest.Wait()
		waits.waiting, waits.since = map[string]int{"a": 3, "old": 1}, time.Now()
		set.Conflict("a")
		set.Woke("a", 2)
		set.Add(&holdings.Holding{Keys: []string{"a"}, Waited: true, Lease: leased{}})
		set.Add(&holdings.Holding{Keys: []string{"quiet", "a"}, Lease: leased{}})
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		var text strings.Builder
		for _, m := range history(t, client, time.Now())[:9] {
			all, ok := m.All()
			key, _ := m.Of("a")
			old, _ := m.Of("old")
			fmt.Fprintln(&text, ok, all.Waiting, all.Holds, all.Wakes, all.Refusals, key.Waiting, key.Holds, key.Wakes, key.Refusals, old.Waiting)
		}
		const want = `true 4 0 0 0 3 0 0 0 1
true 4 0 0 0 3 0 0 0 1
true 4 3 2 1 3 2 2 1 0
false 0 0 0 0 0 -1 0 0 0
false 0 0 0 0 0 -1 0 0 0
true 0 0 0 0 0 -1 0 0 0
true 0 0 0 0 0 -1 0 0 0
true 0 0 0 0 0 -1 0 0 0
false 0 0 0 0 0 -1 0 0 0
`
		if text.String() != want {
			t.Errorf("the history is\n%swant\n%s", text.String(), want)
		}
	})
}

func TestAReportThatCannotCountTellsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Virtual(t)
		r := holdings.New(client, &holdings.Set{}, holdings.Worker{}, holdings.Options{
			Store: func(context.Context) (string, bool) { return "x", true }, Parked: &parked{err: errors.New("no answer")},
		})
		starts(t, r, false)
		defer r.Close()
		time.Sleep(time.Minute)
		for _, m := range history(t, client, time.Now()) {
			wants(t, m.At.String(), holdings.Point{}, false)(m.All())
		}
	})
}

// Sixty-five minutes in which ten workers tell of all keys that they may, with keys as long as they may be.
func TestTheHistoryTakesTwoMegabytesAtMost(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	before := memory(t, client)
	now := time.Now()
	for minute := range 65 {
		for worker := range 10 {
			keys := map[string]holdings.Point{}
			for n := range 100 {
				keys[fmt.Sprintf("%d %d %d %s", minute, worker, n, strings.Repeat("k", 1024))] = holdings.Point{
					Waiting: 100_000, Oldest: 24 * time.Hour, Holds: 10_000, Wakes: 10_000, Refusals: 10_000,
				}
			}
			at := now.Add(-time.Duration(minute) * time.Minute)
			if _, err := holdings.Remember(t.Context(), client, at, holdings.Point{}, keys, false); err != nil {
				t.Fatal(err)
			}
		}
	}
	used := memory(t, client) - before
	t.Logf("the history takes %d bytes", used)
	if used > 2<<20 {
		t.Errorf("the history takes %d bytes", used)
	}
	// Of a key that is left out nothing is known, of one that is there all.
	m := history(t, client, now)[0]
	wants(t, "a key that is left out", holdings.Point{Holds: -1}, false)(m.Of("any"))
	if _, ok := m.All(); !ok {
		t.Error("a full minute counts as one without reports")
	}
}

func memory(t *testing.T, client *redis.Client) (sum int64) {
	t.Helper()
	for _, name := range client.Keys(t.Context(), "railtoken:history:*").Val() {
		sum += client.MemoryUsage(t.Context(), name).Val()
	}
	return sum
}
