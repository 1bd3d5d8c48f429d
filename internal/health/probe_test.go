package health

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestManyCallersShareOneAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var attempts atomic.Int64
		p := &Probe{Try: func(context.Context) error {
			attempts.Add(1)
			time.Sleep(time.Millisecond)
			return nil
		}}
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if e := p.Look(t.Context()); e.Err != nil || !e.Last.Equal(time.Now()) {
					t.Errorf("%+v", e)
				}
			})
		}
		all.Wait()
		p.Look(t.Context())
		if n := attempts.Load(); n != 1 {
			t.Errorf("%d attempts within a second; want 1", n)
		}
		time.Sleep(fresh)
		p.Look(t.Context())
		if n := attempts.Load(); n != 2 {
			t.Errorf("%d attempts after a second; want 2", n)
		}
	})
}

func TestAnAttemptThatHangsFailsAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		end, attempts := make(chan struct{}), 0
		p := &Probe{Try: func(context.Context) error { // it ignores its context
			attempts++
			<-end
			return nil
		}}
		for range 3 {
			began := time.Now()
			if e := p.Look(t.Context()); !errors.Is(e.Err, context.DeadlineExceeded) || !e.Last.IsZero() {
				t.Errorf("%+v", e)
			}
			if took := time.Since(began); took != patience {
				t.Errorf("it was waited for %v", took)
			}
		}
		close(end)
		synctest.Wait()
		if e := p.Look(t.Context()); e.Err != nil || e.Last.IsZero() || attempts != 1 {
			t.Errorf("%+v after %d attempts", e, attempts)
		}
	})
}

func TestAFailureKeepsTheLastSuccess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var err error
		p := &Probe{Try: func(context.Context) error { return err }}
		first := p.Look(t.Context())
		time.Sleep(time.Minute)
		err = errors.New("gone")
		if e := p.Look(t.Context()); !errors.Is(e.Err, err) || !e.Last.Equal(first.Last) {
			t.Errorf("%+v; want the error, and the success at %v", e, first.Last)
		}
	})
}
