package lanemove_test

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/asynqwire"
)

// many is how many tasks TestManyTasksMoveWhileTwoServersWork moves: see scripts/move.sh.
var many = flag.Int("many", 1000, "the `number` of tasks that move into lanes")

// Of the tasks a fifth waits for keys, a hundredth runs in order, and a twentieth is scheduled.
func TestManyTasksMoveWhileTwoServersWork(t *testing.T) {
	t.Parallel()
	const hot = 4
	parked, inOrder, scheduled := *many/5, *many/100, *many/20
	s := newSystem(t)
	p := s.producer()
	each := func(n int, do func(i int)) {
		const side = 8
		var all sync.WaitGroup
		for first := range side {
			all.Go(func() {
				for i := first; i < n; i += side {
					do(i)
				}
			})
		}
		all.Wait()
	}
	old := s.work(0, func(ctx context.Context, _ job) error {
		<-ctx.Done()
		return ctx.Err()
	})
	each(parked+hot, func(i int) {
		s.add(p, "best", job{Name: fmt.Sprintf("hot/%06d", i), Key: fmt.Sprintf("hot:%d", i%hot)})
	})
	s.within(time.Duration(parked)*20*time.Millisecond+limit, "tasks are parked", func() bool { return s.size(asynqwire.Retry(queue)) == parked })
	if err := old.Shutdown(); err != nil {
		t.Fatal(err)
	}
	for i := range inOrder { // one after the other: that is their order
		s.addInOrder(p, job{Name: fmt.Sprintf("fifo/%06d", i), Key: fmt.Sprintf("fifo:%d", i%10)})
	}
	each(scheduled, func(i int) {
		s.add(p, "best", job{Name: fmt.Sprintf("later/%06d", i), Key: fmt.Sprintf("key:%d", i)}, asynq.ProcessIn(time.Duration(i%10)*time.Second))
	})
	rest := *many - parked - inOrder - scheduled
	each(rest, func(i int) {
		s.add(p, "best", job{Name: fmt.Sprintf("any/%06d", i), Key: fmt.Sprintf("key:%d", i%1000)})
	})
	want := *many + hot

	var mu sync.Mutex
	runs, last := map[string]int{}, map[string]string{}
	run := func(_ context.Context, j job) error {
		mu.Lock()
		defer mu.Unlock()
		runs[j.Name]++
		if strings.HasPrefix(j.Name, "fifo") {
			if last[j.Key] > j.Name {
				t.Errorf("%s runs after %s", j.Name, last[j.Key])
			}
			last[j.Key] = j.Name
		}
		return nil
	}
	began, begun := time.Now(), false
	report, err := s.move(nil, func(int) {
		if !begun {
			begun = true
			s.work(inLanes, run)
			s.work(inLanes, run)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("of %d tasks %d have moved in %v: %v", want, report.Total(), time.Since(began).Round(time.Millisecond), report.Moved)
	s.within(time.Duration(*many)*20*time.Millisecond+limit, "all have run", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(runs) == want
	})
	t.Logf("all have run after %v", time.Since(began).Round(time.Millisecond))
	mu.Lock()
	defer mu.Unlock()
	for name, n := range runs {
		if n != 1 {
			t.Errorf("%s has run %d times", name, n)
		}
	}
}
