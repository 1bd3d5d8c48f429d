package line

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/colocated"
)

// asynq acknowledges no run whose lease has ended.
func TestRunsWithoutAnAcknowledgementAreForgotten(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		claimed bool
		pause   time.Duration
	}{
		"they tell of their end": {true, 2 * time.Minute},
		"they tell of nothing":   {false, 2 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := &Engine{}
				fetch := func(id string) *Run {
					(*tasks)(q).Fetched(broker.Fetched{Queue: "default", ID: id})
					if !tt.claimed {
						return nil
					}
					r, err := q.Run(Task{Queue: "default", ID: id})
					if err != nil {
						t.Fatal(err)
					}
					return r
				}
				runs := fetch("runs all the time")
				for round := range 30 {
					for i := range 500 {
						fetch(fmt.Sprint(round, ":", i)).End(t.Context())
					}
					time.Sleep(tt.pause)
					if n := q.Runs(); n > 2*sweepFrom {
						t.Fatalf("%d runs are remembered after %d rounds", n, round+1)
					}
				}
				if runs == nil {
					return
				}
				if r, err := q.Run(runs.task); r != runs || err != nil {
					t.Errorf("a run that has not ended is forgotten: %v", err)
				}
			})
		})
	}
}

func TestAnUnknownAsynqHasNoRuns(t *testing.T) {
	t.Parallel()
	q := &Engine{}
	task := Task{Queue: "default", ID: "a"}
	if r, err := q.Run(task); r != nil || !errors.Is(err, ErrNotOurs) {
		t.Errorf("%v, %v", r, err)
	}
	q.runs.foreign.Store(true)
	q.runs.plain.Store(true)
	r, err := q.Run(task)
	if r != nil || err != nil || r.Met(0) != (Conflict{}) {
		t.Errorf("%v, %v", r, err)
	}
	r.End(context.Background())
}

// parksAll is a Parker.
type parksAll struct{}

func (parksAll) ParkFetched(r *Run, _ Refused) bool {
	r.Park("key", ParkOptions{}, nil)
	return true
}

func (parksAll) Keys() func(*asynq.Task) []string                    { return nil }
func (parksAll) Adopt(Task, string, *colocated.Taken) colocated.Held { return nil }

func (parksAll) LockFetched(context.Context, Task, string, []string) (colocated.Held, *colocated.Refused) {
	return nil, nil
}

func (parksAll) Wait() (none colocated.Wait) { return none }
func (parksAll) Parked(Refused, []Parked)    {}

// The server learns that a task needs its slot no more.
func TestATaskThatWasRefusedFreesItsSlotOnceItIsParked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, client := newVirtual(t, Options{})
		e.parkers.learn("test", parksAll{})
		e.runs.drop(active(t, e, client, "a"))
		parked := 0
		f := broker.Fetched{Queue: "q", ID: "a", Run: "run of a", Message: messageOf("a", 0, 0), Refused: &colocated.Refused{}}
		if !(*tasks)(e).Park(f, func() { parked++ }, nil) {
			t.Fatal("it is not parked")
		}
		e.pending.Wait()
		if parked != 1 || !waits(t, client, "a", "key") {
			t.Errorf("its slot is freed %d times", parked)
		}
	})
}

// The Engine is closed while a task is to be parked, and another fetch removes the runs that are over.
func TestAClosedEngineLeavesRefusedTasksToAsynq(t *testing.T) {
	t.Parallel()
	q := &Engine{closed: true}
	q.parkers.learn("test", parksAll{})
	parked, swept := make(chan bool), make(chan struct{})
	q.mu.Lock()
	go func() {
		f := broker.Fetched{Queue: "default", ID: "a", Message: "\x0a\x04test"}
		parked <- (*tasks)(q).Park(f, func() {}, nil)
	}()
	locked := func(mu *sync.Mutex) bool {
		if mu.TryLock() {
			mu.Unlock()
			return false
		}
		return true
	}
	r := q.runs.of(Task{Queue: "default", ID: "a"})
	for r == nil || !locked(&r.mu) {
		runtime.Gosched()
		r = q.runs.of(Task{Queue: "default", ID: "a"})
	}
	q.runs.sweep = 0
	go func() {
		(*tasks)(q).Fetched(broker.Fetched{Queue: "default", ID: "b"})
		close(swept)
	}()
	for !locked(&q.runs.mu) {
		runtime.Gosched()
	}
	q.mu.Unlock()
	select {
	case is := <-parked:
		if is {
			t.Error("a task is to be parked by a closed Engine")
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the two wait for each other")
	}
	<-swept
	if n := q.Runs(); n != 1 {
		t.Errorf("%d runs are remembered, want 1", n)
	}
}

// endsLate is the context of a run that asynq ends, and acknowledges, right after the context was found to go on.
type endsLate struct {
	context.Context
	end func()
}

func (c endsLate) Err() error {
	c.end()
	return nil
}

func TestARunThatResumesIsNotParked(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{MaxRetries: -1, Dialer: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("there is no server")
	}})
	defer client.Close()
	e, err := New(client, Options{})
	if err != nil {
		t.Fatal(err)
	}
	(*tasks)(e).Fetched(broker.Fetched{Queue: "default", ID: "a"})
	r, err := e.Run(Task{Queue: "default", ID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	r.Park("k", ParkOptions{RetryAfter: time.Minute}, nil)
	parks := make(chan bool, 1)
	resumes := r.Resume(endsLate{t.Context(), func() {
		go func() {
			answered, _, _ := (*tasks)(e).Acknowledge(t.Context(), broker.Acknowledgement{Queue: "default", ID: "a", Script: "retry"})
			parks <- answered
		}()
		for began := time.Now(); len(parks) == 0 && time.Since(began) < 100*time.Millisecond; { // or it waits for the other
			runtime.Gosched()
		}
	}})
	if !resumes || <-parks {
		t.Errorf("the run goes on: %v, and its task was parked", resumes)
	}
	e.cancel()
	e.giveUp()
	e.pending.Wait()
}

// Its server was silent, others have taken the task back, and another server of this process runs it.
func TestAnAcknowledgementOfAnEarlierRunLeavesTheNextOneAlone(t *testing.T) {
	t.Parallel()
	q := &Engine{}
	e := (*tasks)(q)
	task := Task{Queue: "default", ID: "a"}
	e.Fetched(broker.Fetched{Queue: task.Queue, ID: task.ID, Run: "first"})
	e.Fetched(broker.Fetched{Queue: task.Queue, ID: task.ID, Run: "next"})
	next, err := q.Run(task)
	if err != nil {
		t.Fatal(err)
	}
	next.parking = &parking{}
	a := broker.Acknowledgement{Script: "done", Queue: task.Queue, ID: task.ID, Run: "first"}
	if release, _ := e.Release(a); release != nil {
		t.Error("the locks of the next run are released")
	}
	if answered, ended, err := e.Acknowledge(t.Context(), a); answered || ended != nil || err != nil || q.runs.of(task) != next {
		t.Errorf("it is answered %v, %v; the next run is known %v", answered, err, q.runs.of(task) == next)
	}
}
