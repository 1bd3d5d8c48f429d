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

func TestABlockedNodeIsNotAsked(t *testing.T) {
	t.Parallel()
	errBlocked := errors.New("blocked")
	w, blocked := newWire(atOnce), error(nil)
	n := pipeline.New(w.client(t), pipeline.Options{Leaders: 1, Blocked: func() error { return blocked }})
	next(t, send(t, n, echo, nil, 1))
	blocked = errBlocked
	if err := n.Send(pipeline.NewCall(func(*pipeline.Call) { t.Error("an answer to a call that was refused") }, echo,
		nil, 2)); !errors.Is(err, errBlocked) {
		t.Errorf("error %v, want %v", err, errBlocked)
	}
	blocked = nil
	next(t, send(t, n, echo, nil, 3))
	if got := w.sent(); !slices.Equal(got, []any{1, 3}) {
		t.Errorf("sent %v, want 1 and 3", got)
	}
}

func TestAFailingServerIsAskedLessAndLess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		down.Store(true)
		w := newWire(func() error {
			if down.Load() {
				return errors.New("connection refused")
			}
			return nil
		})
		n := pipeline.New(w.client(t), pipeline.Options{Leaders: 1, Patience: 50 * time.Millisecond})
		taken := func(d time.Duration) (taken int) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Millisecond) { // virtual
				if n.Send(pipeline.NewCall(func(*pipeline.Call) {}, echo, nil, 1)) == nil {
					taken++
				}
				synctest.Wait()
			}
			return taken
		}
		// Pauses of 25, 50, 100, 200, 400 and 800 ms, and 1 s from then on.
		if got := taken(10 * time.Second); got < 13 || got > 16 {
			t.Errorf("%d calls in 10s, want about 15", got)
		}
		down.Store(false)
		time.Sleep(time.Second) // virtual
		if got := taken(time.Second); got != 1000 {
			t.Errorf("%d calls in 1s after it has answered again, want all 1000", got)
		}
		down.Store(true)
		if got := taken(200 * time.Millisecond); got < 3 || got > 5 {
			t.Errorf("%d calls in 200ms after it has failed anew, want about 4", got)
		}
	})
}

func TestAHangingServerIsAskedForPatienceAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var hang atomic.Bool
		hang.Store(true)
		w := newWire(func() error {
			if hang.CompareAndSwap(true, false) {
				time.Sleep(time.Second) // virtual
				return errors.New("i/o timeout")
			}
			return nil
		})
		n := pipeline.New(w.client(t), pipeline.Options{Leaders: 1, Patience: 50 * time.Millisecond})
		send(t, n, echo, nil, 1)
		time.Sleep(45 * time.Millisecond) // virtual
		second := send(t, n, echo, nil, 2)
		time.Sleep(10 * time.Millisecond) // virtual
		if err := n.Send(pipeline.NewCall(nil, echo, nil, 3)); err == nil {
			t.Error("a call was taken 55ms after the first that has no answer")
		}
		if c := <-second; c.Err != nil || c.Reply != 2 {
			t.Errorf("the second has reply %v, error %v", c.Reply, c.Err)
		}
		<-send(t, n, echo, nil, 4)
		if got := w.sent(); !slices.Equal(got, []any{1, 2, 4}) {
			t.Errorf("sent %v, want all but the one that was refused", got)
		}
	})
}

func TestAHangingServerFailsNewcomersAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var hang atomic.Bool
		hang.Store(true)
		w := newWire(func() error {
			if hang.CompareAndSwap(true, false) {
				time.Sleep(300 * time.Millisecond) // virtual
			}
			return nil
		})
		n := pipeline.New(w.client(t), pipeline.Options{Leaders: 1, Timeout: time.Second, Patience: 50 * time.Millisecond})
		began := time.Now()
		late := make(chan string, 10)
		call := func(script *pipeline.Script, name string) <-chan *pipeline.Call {
			answers := make(chan *pipeline.Call, 1)
			c := pipeline.NewCall(func(c *pipeline.Call) { answers <- c }, script, nil, name)
			c.Late = func(*pipeline.Call) { late <- name }
			if err := n.Send(c); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return answers
		}
		first := call(ask, "first")
		synctest.Wait()
		newcomer, release := call(ask, "newcomer"), call(echo, "release")
		if c := <-newcomer; !errors.Is(c.Err, pipeline.ErrNotSent) || time.Since(began) != 50*time.Millisecond {
			t.Errorf("the newcomer has error %v after %v, want ErrNotSent after 50ms", c.Err, time.Since(began))
		}
		if a, b := <-late, <-late; a != "first" || b != "release" {
			t.Errorf("told of a late answer: %s and %s, want the first and the release", a, b)
		}
		if c := <-first; c.Err != nil || c.Reply != "first" {
			t.Errorf("the first has reply %v, error %v", c.Reply, c.Err)
		}
		if c := <-release; c.Err != nil || c.Reply != "release" || time.Since(began) != 300*time.Millisecond {
			t.Errorf("the release has reply %v, error %v after %v", c.Reply, c.Err, time.Since(began))
		}
		if got := w.sent(); !slices.Equal(got, []any{"first", "release"}) || len(late) > 0 {
			t.Errorf("sent %v, and %d more were told of a late answer", got, len(late))
		}
	})
}

func TestNoCallWaitsBehindAPipelineThatTimesOut(t *testing.T) {
	t.Parallel()
	w := newWire(func() error { return context.DeadlineExceeded })
	n := pipeline.New(w.client(t), pipeline.Options{Leaders: 1})
	w.holds(true)
	first := send(t, n, echo, nil, "first")
	next(t, w.began)
	second := send(t, n, echo, nil, "second")
	w.goOn <- struct{}{}
	if c := next(t, first); !errors.Is(c.Err, context.DeadlineExceeded) || errors.Is(c.Err, pipeline.ErrNotSent) {
		t.Errorf("the first has error %v", c.Err)
	}
	if c := next(t, second); !errors.Is(c.Err, pipeline.ErrNotSent) {
		t.Errorf("the second has error %v, want ErrNotSent", c.Err)
	}
	if got := w.sent(); !slices.Equal(got, []any{"first"}) {
		t.Errorf("sent %v, want only the first", got)
	}
}

func TestCancellationEndsACallAtOnce(t *testing.T) {
	t.Parallel()
	for leaders := range 3 {
		t.Run(fmt.Sprintf("%d leaders", leaders), func(t *testing.T) {
			t.Parallel()
			w := newWire(atOnce)
			n := pipeline.New(w.client(t), pipeline.Options{Leaders: leaders})
			w.holds(true)
			ctx, cancel := context.WithCancel(t.Context())
			lone := run(ctx, n, pipeline.NewCall(nil, echo, nil, "lone"))
			next(t, w.began)
			cancel()
			if got := next(t, lone); !errors.Is(got.err, context.Canceled) {
				t.Errorf("the caller has %v", got)
			}
			w.goOn <- struct{}{}
			if _, err := n.Run(ctx, pipeline.NewCall(nil, echo, nil, "over")); !errors.Is(err, context.Canceled) ||
				len(w.sent()) != 1 {
				t.Errorf("error %v, sent %v; want nothing more", err, w.sent())
			}
		})
	}
}
