package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/locking"
)

// cut is a connection that breaks after a number of calls. If late is true, the server has executed the call at which it
// breaks.
type cut struct {
	left atomic.Int64
	late bool
}

func (c *cut) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *cut) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		left := c.left.Add(-1)
		if left < 0 {
			if c.late && left == -1 {
				_ = next(ctx, cmd)
			}
			cmd.SetErr(io.ErrUnexpectedEOF)
			return io.ErrUnexpectedEOF
		}
		return next(ctx, cmd)
	}
}

func (c *cut) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		left := c.left.Add(-1)
		if left < 0 {
			if c.late && left == -1 {
				_ = next(ctx, cmds)
			}
			for _, cmd := range cmds {
				cmd.SetErr(io.ErrUnexpectedEOF)
			}
			return io.ErrUnexpectedEOF
		}
		return next(ctx, cmds)
	}
}

func TestDeposeStoppedAfterAnyStepCanBeRepeated(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprintf("reply lost %v", late), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			l := r.locks()
			for steps := range int64(40) {
				if r.stopAfter(l, steps, late) {
					if steps < 4 {
						t.Errorf("it has made only %d calls", steps)
					}
					break
				}
			}
		})
	}
}

// stopAfter deposes a holder by a process that dies after some calls, repeats it, and reports whether the first one was
// done.
func (r *rig) stopAfter(l *locking.Single, calls int64, late bool) (done bool) {
	r.Helper()
	ctx := r.Context()
	r.client.FlushAll(ctx)
	lease, err := l.Acquire(ctx, []string{"k"}, locking.Options{})
	if err != nil {
		r.Fatal(err)
	}
	defer lease.Release(ctx) //nolint:errcheck // it is lost
	token, err := lease.Fence(ctx)
	if err != nil {
		r.Fatal(err)
	}
	d := by(r.owner("k"))
	var floors []int64
	d.Floor = func(_ context.Context, floor int64) error {
		floors = append(floors, floor)
		return nil
	}
	broken := &cut{late: late}
	broken.left.Store(calls)
	dying := redis.NewClient(&redis.Options{Addr: r.client.Options().Addr, MaxRetries: -1})
	dying.AddHook(broken)
	first, err := inspect.New(inspect.Options{Tasks: dying})
	if err != nil {
		r.Fatal(err)
	}
	brief, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	_, err = first.Depose(brief, "k", d)
	done = err == nil
	if left := r.client.PTTL(ctx, "railtoken:lock:{k}").Val(); left == -1 || left > 30*time.Second {
		r.Errorf("after %d calls the key stays locked for %v", calls, left)
	}
	if r.client.Exists(ctx, "railtoken:lock:{k}").Val() == 0 && len(floors) == 0 {
		r.Errorf("after %d calls the key is free, and the resource does not refuse its holder", calls)
	}
	floor, err := r.inspect.Depose(ctx, "k", d)
	if err != nil || floor <= token || len(floors) == 0 {
		r.Errorf("after %d calls, repeated: the floor is %d above the token %d, %v", calls, floor, token, err)
	}
	next, err := l.Acquire(ctx, []string{"k"}, locking.Options{})
	if err != nil {
		r.Fatalf("after %d calls the next holder is refused: %v", calls, err)
	}
	if larger, err := next.Fence(ctx); err != nil || larger <= floor {
		r.Errorf("after %d calls the next token is %d above the floor %d, %v", calls, larger, floor, err)
	}
	if err := lease.Renew(ctx); !errors.Is(err, locking.ErrLost) {
		r.Errorf("after %d calls the holder renews: %v", calls, err)
	}
	if err := next.Release(ctx); err != nil {
		r.Error(err)
	}
	_ = dying.Close() // first, so that nothing is repeated
	_ = first.Close()
	return done
}
