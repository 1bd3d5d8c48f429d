package items_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"pgregory.net/rapid"

	"github.com/railtoken/railtoken/items"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

// pairs is how many pairs of tasks the test of deadlocks runs: "make items" runs a thousand.
var pairs = flag.Int("pairs", 60, "`number` of random pairs of tasks with keys in common")

// crossing is the payload of a task whose keys are chosen at random.
type crossing struct {
	Pair  string     `json:"pair"`
	Whole []string   `json:"whole"` // keys for the whole run
	Items [][]string `json:"items"`
}

func TestTasksWithKeysInCommonNeverDeadlock(t *testing.T) {
	t.Parallel()
	s := newSite(t, handler(func(context.Context, string) error { return nil }))
	var mu sync.Mutex
	inside, ended := map[string]string{}, make(chan string, 1000)
	w, err := worker.New(worker.Config{
		Redis: s.redis, Queues: map[string]int{"crossing": 1}, Concurrency: 8,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Shutdown() })
	claim := func(who string, keys []string) error {
		mu.Lock()
		defer mu.Unlock()
		for _, key := range keys {
			if other, taken := inside[key]; taken {
				return fmt.Errorf("%w: %s and %s have %s", errMet, who, other, key)
			}
		}
		for _, key := range keys {
			inside[key] = who
		}
		return nil
	}
	met := make(chan error, 1000)
	err = worker.HandleItems(w, "crossing", items.Handler[crossing, []string]{
		Split:    func(c crossing) [][]string { return c.Items },
		ItemKeys: func(keys []string) []string { return keys },
		Keys:     func(c crossing) []string { return c.Whole },
		Run: func(ctx context.Context, keys []string) error {
			id, _ := asynq.GetTaskID(ctx)
			if err := claim(id, keys); err != nil {
				met <- err
				return err
			}
			<-time.After(100 * time.Microsecond)
			mu.Lock()
			defer mu.Unlock()
			for _, key := range keys {
				delete(inside, key)
			}
			return nil
		},
		Finish: func(ctx context.Context, c crossing, r items.Report) error {
			if r.Err() != nil {
				met <- r.Err()
			}
			ended <- c.Pair
			return nil
		},
		Strategy: middleware.Requeue{},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	number, longest := 0, time.Duration(0)
	rapid.Check(t, func(rt *rapid.T) {
		if number >= *pairs {
			return
		}
		number++
		key := func(n int) string { return fmt.Sprintf("pair:%d:%d", number, n) }
		began := time.Now()
		tasks := rapid.IntRange(2, 3).Draw(rt, "tasks")
		for n := range tasks {
			c := crossing{Pair: fmt.Sprint(number), Whole: []string{fmt.Sprintf("whole:%d:%d", number, n)}}
			own := rapid.IntRange(0, 9).Draw(rt, "key of the run")
			if rapid.Bool().Draw(rt, "it is an item's of the others") {
				c.Whole = []string{key(own)}
			}
			for range rapid.IntRange(1, 12).Draw(rt, "items") {
				var keys []string
				for _, k := range rapid.SliceOfNDistinct(rapid.IntRange(0, 9), 1, 3, rapid.ID[int]).Draw(rt, "keys") {
					if key(k) != c.Whole[0] {
						keys = append(keys, key(k))
					}
				}
				if len(keys) > 0 {
					c.Items = append(c.Items, keys)
				}
			}
			if len(c.Items) == 0 {
				c.Items = [][]string{{"alone:" + c.Whole[0]}}
			}
			if _, err := s.producer.Enqueue(t.Context(), "crossing", c, asynq.Queue("crossing")); err != nil {
				rt.Fatal(err)
			}
		}
		for range tasks {
			select {
			case <-ended:
			case err := <-met:
				rt.Fatal(err)
			case <-time.After(patience):
				rt.Fatalf("pair %d has not ended", number)
			}
		}
		longest = max(longest, time.Since(began))
	})
	t.Logf("%d pairs; the longest took %v", number, longest.Round(time.Millisecond))
	if len(met) > 0 {
		t.Error(<-met)
	}
}

var errMet = fmt.Errorf("two items met")
