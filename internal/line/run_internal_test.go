package line

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// newVirtual returns an Engine on a fake Redis, and a client of that.
func newVirtual(t *testing.T, opts Options) (*Engine, *redis.Client) {
	t.Helper()
	m, client := redistest.Virtual(t)
	e, err := New(redistest.Patient(t, m), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e, client
}

// A nil Run is that of an asynq whose scripts are unknown: nothing is known of it, and nothing happens to it.
func TestARunKnowsWhatItsTaskHasMet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var none *Run
		if none.Met(0) != (Conflict{}) || none.ByTimer(0) || none.Woken() || none.WokenFor() != 0 || none.PutBack() || none.InSequence("k") || none.Overdue() {
			t.Error("something is known of no run")
		}
		none.End(t.Context())
		none.Took([]string{"k"}, false)
		none.Passed()
		none.Withdraw()
		none.Limited()
		none.OnCancel(func(Cancellation) { t.Error("no run is cancelled") })
		none.Outdated(t.Context(), nil)
		none.Learn("test", nil, time.Minute, parksAll{})
		if held, taken := none.Claim(); held != nil || taken != nil || none.Release(ReleaseOptions{}) {
			t.Error("no run has locks")
		}
		if by, err := none.BeginLatest(t.Context(), ""); by != (Task{}) || err != nil {
			t.Errorf("no run is superseded by %v, %v", by, err)
		}

		met := Conflict{Count: 2, First: time.Unix(1, 0)}
		r := &Run{queue: &Engine{}, met: met, tries: 3, sequence: Names{}.Sequence("k") + " fifo", wokenFor: time.Second, since: time.Now()}
		if r.Met(3) != met || r.Met(2) != (Conflict{}) {
			t.Errorf("the task has met %v, and at another attempt %v", r.Met(3), r.Met(2))
		}
		if !r.InSequence("k") || r.InSequence("l") || (&Run{queue: &Engine{}, sequence: Names{}.Sequence("kk")}).InSequence("k") {
			t.Error("the sequence is not that of its key alone")
		}
		for _, by := range []struct {
			woken bool
			count int
			tries int
			timer bool
		}{{false, 2, 3, true}, {true, 2, 3, false}, {false, 0, 3, false}, {false, 2, 2, false}} {
			r.woken, r.met.Count = by.woken, by.count
			if got := r.ByTimer(by.tries); got != by.timer || r.Woken() != by.woken {
				t.Errorf("%+v: by its timer: %v, woken: %v", by, got, r.Woken())
			}
		}
		time.Sleep(2 * time.Second)
		if got := r.WokenFor(); got != 3*time.Second {
			t.Errorf("it was woken %v ago", got)
		}
		if r.wokenFor = 0; r.WokenFor() != 0 {
			t.Error("it is known when a task was woken that was not")
		}
		if r.putBack = true; !r.PutBack() {
			t.Error("asynq has put the task back, and nobody knows")
		}
	})
}

func TestAWaitThatIsOverIsResumedUnlessAsynqHasEndedTheRun(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tc := range []struct {
		ctx             context.Context
		putBack, resume bool
	}{{t.Context(), false, true}, {over, false, false}, {over, true, true}} {
		e := &Engine{}
		r := &Run{queue: e, task: Task{Queue: "q", ID: "a"}, putBack: tc.putBack}
		if e.Waits(r.task) {
			t.Error("a run waits that is not known")
		}
		e.runs.add(r)
		if e.Waits(r.task) {
			t.Error("a run waits that has not parked")
		}
		r.Postpone(time.Minute)
		if !e.Waits(r.task) || r.parking.key != "" || r.parking.opts.RetryAfter != time.Minute {
			t.Errorf("the run is not postponed: %+v", r.parking)
		}
		if got := r.Resume(tc.ctx); got != tc.resume || e.Waits(r.task) == tc.resume {
			t.Errorf("%+v: the run is resumed: %v, and waits: %v", tc, got, e.Waits(r.task))
		}
		r.Withdraw()
		if e.Waits(r.task) {
			t.Error("it waits although that was withdrawn")
		}
	}
}

func TestARunHearsOfItsCancellationOnce(t *testing.T) {
	t.Parallel()
	for _, before := range []bool{true, false} {
		r, heard := &Run{queue: &Engine{}}, []string{}
		hear := func(c Cancellation) { heard = append(heard, c.By) }
		if !before {
			r.OnCancel(hear)
		}
		r.cancel(Cancellation{By: "first"})
		r.cancel(Cancellation{By: "second"})
		if before {
			r.OnCancel(hear)
		}
		if len(heard) != 1 || heard[0] != "first" {
			t.Errorf("it hears of the cancellations by %v", heard)
		}
	}
}

// A call for waiting tasks is repeated until it succeeds, or for 5 s; once the server stops, it is not.
func TestACallForWaitingTasksIsRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failure := errors.New("away")
		over, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		got, err := Retry(over, nil, func(ctx context.Context) (int, error) {
			if time.Since(began) < 2*time.Second {
				return 0, failure
			}
			return 7, ctx.Err()
		})
		if got != 7 || err != nil || time.Since(began) > 4*time.Second {
			t.Errorf("%d, %v after %v", got, err, time.Since(began))
		}
		began = time.Now()
		_, err = Retry(t.Context(), nil, func(context.Context) (int, error) { return 0, failure })
		if took := time.Since(began); !errors.Is(err, failure) || took < 4*time.Second || took > retryFor {
			t.Errorf("%v after %v", err, took)
		}
		stopping, calls := make(chan struct{}), 0
		close(stopping)
		_, err = Retry(t.Context(), stopping, func(context.Context) (int, error) {
			calls++
			return 0, failure
		})
		if !errors.Is(err, failure) || calls != 1 {
			t.Errorf("%v after %d calls of a server that stops", err, calls)
		}
	})
}

// A task that its timer has brought back owes nobody a wake, nor does one that has its key.
func TestARunOwesTheWakeThatItHasHad(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		wait  Wait
		woken bool
		want  string
	}{
		"woken": {Wait{Keys: []string{"k"}}, true, Names{}.Waiters("k")}, "by its timer": {Wait{Keys: []string{"k"}}, false, ""},
		"for its own key": {Wait{Keys: []string{"k"}, Own: true}, true, ""}, "for none": {Wait{}, true, ""},
	} {
		if r := (*tasks)(&Engine{}).runOf(broker.Fetched{Queue: "q", ID: "a", Wait: tc.wait.String(), Woken: tc.woken}); r.owes != tc.want {
			t.Errorf("%s: it owes a wake to %q", name, r.owes)
		}
	}
}

// Calls that are under way when an Engine is closed have a second.
func TestACallOutlastsTheEngineByASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, _ := newVirtual(t, Options{})
		e.background(e.closing, time.Hour, func(ctx context.Context) { <-ctx.Done() })
		began := time.Now()
		if err := e.Close(); err != nil || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// A closed Engine begins nothing.
func TestAClosedEngineBeginsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, _ := newVirtual(t, Options{})
		done := make(chan struct{})
		if !e.background(e.closing, time.Second, func(ctx context.Context) {
			defer close(done)
			<-ctx.Done()
		}) {
			t.Error("an open Engine begins nothing")
		}
		began := time.Now()
		<-done
		if took := time.Since(began); took != time.Second {
			t.Errorf("a call within a second has ended after %v", took)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if e.background(e.closing, time.Second, func(context.Context) { t.Error("it has begun") }) {
			t.Error("a closed Engine begins a call")
		}
		if e.followUp(call{target: wakeTarget{key: "k"}}, Woken{Tasks: []Task{{"q", "a"}}, Left: 1}) {
			t.Error("a closed Engine follows up a wake")
		}
		e.lookAfter()
		if e.looks != nil {
			t.Error("a closed Engine looks after tasks")
		}
	})
}
