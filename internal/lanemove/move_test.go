package lanemove_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/holdings"
	"github.com/railtoken/railtoken/internal/lanemove"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// prepare leaves tasks of every kind behind, as workers and producers without lanes have.
func (s *system) prepare() {
	s.Helper()
	p := s.producer()
	for i := range 3 {
		s.add(p, "best", job{Name: fmt.Sprintf("best-%d", i), Key: "a"})
		s.add(p, "fifo", job{Name: fmt.Sprintf("fifo-%d", i), Key: "b"})
	}
	s.add(p, "best", job{Name: "fails", Key: "c", Fails: true})
	w := s.work(0, func(ctx context.Context, j job) error {
		if j.Fails {
			return errBroken
		}
		<-ctx.Done()
		return ctx.Err()
	})
	s.until("tasks are parked, and one has failed", func() bool { return s.size(asynqwire.Retry(queue)) == 5 })
	s.add(p, "fifo", job{Name: "elsewhere", Key: "b"}, asynq.Queue("audit"))
	s.until("one is parked in another queue", func() bool { return s.size(asynqwire.Retry("audit")) == 1 })
	s.until("the worker has reported", func() bool { return s.size(holdings.Workers) == 1 })
	if _, err := s.move(nil, nil); !errors.Is(err, lanemove.ErrWorkers) {
		s.Errorf("a worker without lanes works, and the move says %v", err)
	}
	if err := w.Shutdown(); err != nil {
		s.Fatal(err)
	}
	s.add(p, "best", job{Name: "pending", Key: "d"})
	s.add(p, "best", job{Name: "unique", Key: "e"}, asynq.Unique(time.Hour))
	s.add(p, "best", job{Name: "scheduled", Key: "f"}, asynq.ProcessIn(time.Hour))
	s.add(p, "best", job{Name: "archived", Key: "g"})
	if err := asynq.NewInspectorFromRedisClient(s.client).ArchiveTask(queue, "archived"); err != nil {
		s.Fatal(err)
	}
	plain := asynq.NewClientFromRedisClient(s.client)
	for name, opt := range map[string]asynq.Option{"without": asynq.ProcessIn(0), "without-later": asynq.ProcessIn(time.Hour)} {
		if _, err := plain.Enqueue(asynq.NewTask("best", []byte(`{"Key":"a"}`)), asynq.Queue(queue), asynq.TaskID(name), opt); err != nil {
			s.Fatal(err)
		}
	}
}

// A move that crashes after any of its commands leaves nothing that the next move does not put right.
func TestACrashedMoveIsCompletedByTheNext(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.prepare()
	begin := s.save()

	plan := s.plan()
	report, err := s.move(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(plan.Moved, report.Moved) || !slices.Equal(plan.Lanes, report.Lanes) || report.Total() != 11 {
		t.Errorf("%v %v were planned and %v %v moved, want 11", plan.Moved, plan.Lanes, report.Moved, report.Lanes)
	}
	if report.Stays[lanemove.NoKeys] != 2 || plan.Stays[lanemove.NoKeys] != 2 {
		t.Errorf("%v stay, and were to: %v", report.Stays, plan.Stays)
	}
	want := s.text()
	for _, gone := range []string{"railtoken:waiters:{a}", "railtoken:sequence:{b}", "asynq:{orders}:t:best", "asynq:{orders}:unique"} {
		if strings.Contains(want, gone) { // also among the wakes that were owed
			t.Errorf("%s is left over:\n%s", gone, want)
		}
	}
	if told := "railtoken:lock:{@3-00Q}a}:notify"; !strings.Contains(want, told) {
		t.Errorf("%s is missing: the holder would not see that tasks wait:\n%s", told, want)
	}
	struck := 0
	for n, last := 0, false; ; n, last = n+1, !last {
		s.restore(begin)
		c := &redistest.Crash{}
		c.After(n, last)
		if _, err := s.move(c, nil); !c.Struck() {
			if err != nil {
				t.Error(err)
			}
			break
		}
		struck++
		if _, err := s.move(nil, nil); err != nil {
			t.Fatalf("after a crash at command %d: %v", n, err)
		}
		if got := s.text(); got != want {
			t.Fatalf("after a crash at command %d (%v) there is\n%s\nwant\n%s", n, last, got, want)
		}
	}
	t.Logf("%d crashes", struck)
}

func (s *system) plan() *lanemove.Report {
	s.Helper()
	q, err := delayqueue.New(s.client, delayqueue.Options{Lanes: inLanes})
	if err != nil {
		s.Fatal(err)
	}
	defer q.Close()
	plan, err := lanemove.Plan(s.Context(), lanemove.Options{Engine: (*line.Engine)(q), Queue: queue})
	if err != nil {
		s.Fatal(err)
	}
	return plan
}

// While workers with lanes work, and moves crash, each task runs once, and those of a key in order.
func TestTasksRunOnceWhileTheyMove(t *testing.T) {
	t.Parallel()
	const keys, each = 10, 20
	s := newSystem(t)
	p := s.producer()
	for k := range keys {
		for i := range each {
			s.add(p, "best", job{Name: fmt.Sprintf("best/%d/%02d", k, i), Key: fmt.Sprintf("best:%d", k)})
			s.addInOrder(p, job{Name: fmt.Sprintf("fifo/%d/%02d", k, i), Key: fmt.Sprintf("fifo:%d", k)})
		}
	}
	old := s.work(0, func(ctx context.Context, _ job) error {
		<-ctx.Done()
		return ctx.Err()
	})
	s.until("tasks are parked behind the running ones", func() bool { return s.size(asynqwire.Retry(queue)) >= each })
	if err := old.Shutdown(); err != nil {
		t.Fatal(err)
	}
	for i := range each {
		for k := range keys {
			s.add(p, "best", job{Name: fmt.Sprintf("later/%d/%02d", k, i), Key: fmt.Sprintf("best:%d", k)}, asynq.ProcessIn(time.Duration(i%3)*time.Second))
		}
	}

	var mu sync.Mutex
	runs, last := map[string]int{}, map[string]string{}
	run := func(_ context.Context, j job) error {
		mu.Lock()
		defer mu.Unlock()
		runs[j.Name]++
		if kind, _, _ := strings.Cut(j.Name, "/"); kind == "fifo" {
			if last[j.Key] > j.Name {
				t.Errorf("%s runs after %s", j.Name, last[j.Key])
			}
			last[j.Key] = j.Name
		}
		return nil
	}
	begun := false
	for crashes := 0; ; crashes++ {
		c := &redistest.Crash{}
		c.After(200+rand.IntN(800), crashes%2 == 1)
		_, err := s.move(c, func(int) {
			if !begun { // the sequences are adopted
				begun = true
				s.work(inLanes, run)
			}
		})
		if !c.Struck() {
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d moves have crashed", crashes)
			break
		}
	}
	s.until("all have run", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(runs) == 3*keys*each
	})
	mu.Lock()
	defer mu.Unlock()
	for name, n := range runs {
		if n != 1 {
			t.Errorf("%s has run %d times", name, n)
		}
	}
}
