package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railtoken/railtoken/internal/pipeline"
)

func TestCallsQueueUpForOnePipeline(t *testing.T) {
	t.Parallel()
	w := newWire(atOnce)
	n := pipeline.New(w.client(t), pipeline.Options{Leaders: 1})
	w.holds(true)
	answers := []<-chan *pipeline.Call{send(t, n, echo, nil, 0)}
	next(t, w.began)
	for i := 1; i <= 10; i++ {
		answers = append(answers, send(t, n, echo, nil, i))
	}
	w.holds(false)
	w.goOn <- struct{}{}
	for i, answer := range answers {
		if c := next(t, answer); c.Err != nil || c.Reply != i {
			t.Errorf("call %d has reply %v, error %v", i, c.Reply, c.Err)
		}
	}
	if got, want := w.sizes(), []int{1, 10}; !slices.Equal(got, want) {
		t.Errorf("round trips of %v calls, want %v", got, want)
	}
}

func TestALoneCallerSendsAtOnce(t *testing.T) {
	t.Parallel()
	w := newWire(atOnce)
	n := pipeline.New(w.client(t), pipeline.Options{Leaders: 1})
	for i := range 3 {
		if reply, err := n.Run(t.Context(), pipeline.NewCall(nil, echo, nil, i)); err != nil || reply != i {
			t.Errorf("call %d has reply %v, error %v", i, reply, err)
		}
	}
	if got, want := w.sizes(), []int{1, 1, 1}; !slices.Equal(got, want) {
		t.Errorf("round trips of %v calls, want %v", got, want)
	}
}

func TestCallsBehindALoneCallerFollowIt(t *testing.T) {
	t.Parallel()
	w := newWire(atOnce)
	n := pipeline.New(w.client(t), pipeline.Options{Leaders: 1})
	w.holds(true)
	first := run(t.Context(), n, pipeline.NewCall(nil, echo, nil, "first"))
	next(t, w.began)
	second := run(t.Context(), n, pipeline.NewCall(nil, echo, nil, "second"))
	queued(t, n)
	third := send(t, n, echo, nil, "third")
	w.holds(false)
	w.goOn <- struct{}{}
	if got := next(t, first); got.err != nil || got.reply != "first" {
		t.Errorf("the first has %v", got)
	}
	if got := next(t, second); got.err != nil || got.reply != "second" {
		t.Errorf("the second has %v", got)
	}
	if got := next(t, third); got.Err != nil || got.Reply != "third" {
		t.Errorf("the third has %v, %v", got.Reply, got.Err)
	}
	if got, want := w.sizes(), []int{1, 2}; !slices.Equal(got, want) {
		t.Errorf("round trips of %v calls, want %v", got, want)
	}
}

func TestAPipelineIsBoundedAndLeavesNoCallBehind(t *testing.T) {
	t.Parallel()
	w := newWire(atOnce)
	n := pipeline.New(w.client(t), pipeline.Options{Leaders: 1})
	w.holds(true)
	answers := []<-chan *pipeline.Call{send(t, n, echo, nil, 0)}
	next(t, w.began)
	for i := 1; i <= 300; i++ {
		answers = append(answers, send(t, n, echo, nil, i))
	}
	w.holds(false)
	w.goOn <- struct{}{}
	for i, answer := range answers {
		if c := next(t, answer); c.Err != nil || c.Reply != i {
			t.Errorf("call %d has reply %v, error %v", i, c.Reply, c.Err)
		}
	}
	if got, want := w.sizes(), []int{1, 128, 128, 44}; !slices.Equal(got, want) {
		t.Errorf("round trips of %v calls, want %v", got, want)
	}
}

func TestWithOneLeaderCallsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	w := newWire(atOnce)
	n := pipeline.New(w.client(t), pipeline.Options{Leaders: 1})
	var want []any
	var answers []<-chan *pipeline.Call
	for i := range 1000 {
		want = append(want, i)
		answers = append(answers, send(t, n, echo, nil, i))
	}
	for _, answer := range answers {
		next(t, answer)
	}
	if got := w.sent(); !slices.Equal(got, want) {
		t.Errorf("sent in the order %v", got)
	}
	if trips := len(w.sizes()); trips == 1000 {
		t.Log("no two calls went out together")
	}
}

func TestLeadersBoundThePipelinesUnderWay(t *testing.T) {
	t.Parallel()
	for leaders := 1; leaders <= 3; leaders++ {
		t.Run(fmt.Sprint(leaders), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var inFlight, most atomic.Int64
				w := newWire(func() error {
					most.Store(max(most.Load(), inFlight.Add(1)))
					time.Sleep(time.Millisecond) // virtual
					inFlight.Add(-1)
					return nil
				})
				n := pipeline.New(w.client(t), pipeline.Options{Leaders: leaders})
				for i := range 20 {
					send(t, n, echo, nil, i)
					synctest.Wait()
				}
				if got := most.Load(); got != int64(leaders) {
					t.Errorf("%d pipelines at the same time, want %d", got, leaders)
				}
				time.Sleep(time.Second) // virtual
				synctest.Wait()
				if got := len(w.sent()); got != 20 || most.Load() != int64(leaders) {
					t.Errorf("%d calls by %d pipelines at the same time, want 20 by %d", got, most.Load(), leaders)
				}
			})
		})
	}
}

func TestLeadersDivideTheCallsAmongThemselves(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ calls, leaders int }{{40, 2}, {40, 3}, {10, 2}} {
		t.Run(fmt.Sprint(tt), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire(func() error {
					time.Sleep(time.Millisecond) // virtual
					return nil
				})
				n := pipeline.New(w.client(t), pipeline.Options{Leaders: tt.leaders})
				for range tt.calls {
					go func() {
						for range 10 {
							if reply, err := n.Run(t.Context(), pipeline.NewCall(nil, echo, nil, "1")); err != nil || reply != "1" {
								t.Errorf("reply %v, error %v", reply, err)
							}
						}
					}()
				}
				time.Sleep(time.Second) // virtual
				synctest.Wait()
				sizes := w.sizes()
				if all := len(w.sent()); all != 10*tt.calls {
					t.Errorf("%d calls were made, want %d", all, 10*tt.calls)
				}
				fair := max((tt.calls+tt.leaders-1)/tt.leaders, 8)
				if most := slices.Max(sizes); most > fair {
					t.Errorf("a pipeline of %d calls, want %d at most: %v", most, fair, sizes)
				}
				if mean, want := 10*tt.calls/len(sizes), tt.calls/tt.leaders/2; mean < want {
					t.Errorf("pipelines of %d calls on average, want %d at least: %v", mean, want, sizes)
				}
			})
		})
	}
}

func TestACallWithdrawnBeforeItsTurnIsNeverSent(t *testing.T) {
	t.Parallel()
	w := newWire(atOnce)
	n := pipeline.New(w.client(t), pipeline.Options{Leaders: 1})
	w.holds(true)
	first := send(t, n, echo, nil, "first")
	next(t, w.began)
	giveUp, cancel := context.WithCancel(t.Context())
	second := run(giveUp, n, pipeline.NewCall(nil, echo, nil, "second"))
	queued(t, n)
	third := send(t, n, echo, nil, "third")
	cancel()
	if got := next(t, second); !errors.Is(got.err, context.Canceled) || !errors.Is(got.err, pipeline.ErrNotSent) ||
		got.reply != nil {
		t.Errorf("the one that gave up has %v", got)
	}
	w.holds(false)
	w.goOn <- struct{}{}
	next(t, first)
	next(t, third)
	if got := w.sent(); !slices.Equal(got, []any{"first", "third"}) {
		t.Errorf("sent %v, want the first and the third", got)
	}
}

func TestAnAnswerMayLeadToTheNextCall(t *testing.T) {
	t.Parallel()
	w := newWire(atOnce)
	n := pipeline.New(w.client(t), pipeline.Options{Leaders: 1, Patience: time.Second})
	end := make(chan *pipeline.Call, 1)
	err := n.Send(pipeline.NewCall(func(*pipeline.Call) {
		if err := n.Send(pipeline.NewCall(func(c *pipeline.Call) { end <- c }, echo, nil, 2)); err != nil {
			t.Error(err)
		}
	}, echo, nil, 1))
	if err != nil {
		t.Fatal(err)
	}
	if c := next(t, end); c.Err != nil || c.Reply != 2 {
		t.Errorf("the second call has reply %v, error %v", c.Reply, c.Err)
	}
}

// ask is a script for newcomers that returns its argument.
var ask = pipeline.NewScript("return ARGV[1] -- of a newcomer").ForNewcomers()

func TestReleasesGoBeforeNewcomers(t *testing.T) {
	t.Parallel()
	w := newWire(atOnce)
	n := pipeline.New(w.client(t), pipeline.Options{Leaders: 1})
	w.holds(true)
	answers := []<-chan *pipeline.Call{send(t, n, ask, nil, "first")}
	next(t, w.began)
	var want []any
	for i := range 300 {
		answers = append(answers, send(t, n, ask, nil, i))
	}
	for i := range 50 {
		answers = append(answers, send(t, n, echo, nil, 1000+i))
		want = append(want, 1000+i)
	}
	for i := range 300 {
		want = append(want, i)
	}
	w.holds(false)
	w.goOn <- struct{}{}
	for _, answer := range answers {
		next(t, answer)
	}
	if got := w.sent(); !slices.Equal(got[1:], want) {
		t.Errorf("sent in the order %v", got)
	}
}

func TestACallThatIsWithdrawnIsNeverSent(t *testing.T) {
	t.Parallel()
	w := newWire(atOnce)
	n := pipeline.New(w.client(t), pipeline.Options{Leaders: 1})
	call := func(i int) *pipeline.Call {
		return pipeline.NewCall(func(*pipeline.Call) {
			if i > 0 {
				t.Errorf("an answer to call %d, which was withdrawn", i)
			}
		}, ask, nil, i)
	}
	w.holds(true)
	if n.Withdraw(call(1)) {
		t.Error("a call was withdrawn that was not made")
	}
	first := call(0)
	if err := n.Send(first); err != nil {
		t.Fatal(err)
	}
	next(t, w.began)
	if n.Withdraw(first) {
		t.Error("a call was withdrawn that is on its way")
	}
	var last <-chan *pipeline.Call
	for i := 1; i <= 1000; i++ { // more than are kept while nothing is taken
		c := call(i)
		if err := n.Send(c); err != nil {
			t.Fatal(err)
		}
		if i == 500 {
			last = send(t, n, ask, nil, "kept")
		}
		if !n.Withdraw(c) {
			t.Errorf("call %d cannot be withdrawn", i)
		}
		if n.Withdraw(c) {
			t.Errorf("call %d can be withdrawn twice", i)
		}
	}
	w.holds(false)
	w.goOn <- struct{}{}
	if c := next(t, last); c.Err != nil || c.Reply != "kept" {
		t.Errorf("the call that was kept has reply %v, error %v", c.Reply, c.Err)
	}
	if got := w.sent(); !slices.Equal(got, []any{0, "kept"}) {
		t.Errorf("sent %v, want the first and the one that was kept", got)
	}
}
