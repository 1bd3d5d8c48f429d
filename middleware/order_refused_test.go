package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// refusing refuses every command for a sequence of tasks for as long as it is on.
type refusing struct{ on *atomic.Bool }

func (refusing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h refusing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		for _, arg := range cmd.Args() {
			if key, ok := arg.(string); ok && h.on.Load() && strings.HasPrefix(key, "railtoken:sequence:") {
				err := errors.New("READONLY as a replica is")
				cmd.SetErr(err)
				return err
			}
		}
		return next(ctx, cmd)
	}
}

func (refusing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// Redis refuses to write for two seconds, as in a failover, and just then a task is done.
func TestATaskThatCannotLeaveItsSequenceTriesAgain(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		var on atomic.Bool
		r.client.AddHook(refusing{&on})
		s := &script{steps: func(_ context.Context, n, _ int) error {
			if n == 1 {
				<-time.After(5 * time.Second)
				on.Store(true)
				time.AfterFunc(2*time.Second, func() { on.Store(false) })
			}
			return nil
		}}
		r.serve(r.options(inTurn["FIFO"]), asynq.Config{Concurrency: 4}, s.handle)
		r.queued("order:1", 1, 3, asynq.MaxRetry(5))
		s.sees(r, 20*time.Second, 1, 2, 3)
	})
}

// The key is given back after each of the commands that tasks send until they are parked.
func TestAParkInOrderDuringAReleaseStrandsNoTask(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	// Each of three tasks is fetched, asks for its position and is parked; the first is refused the key, and the others
	// look at the first.
	const commands = 3*3 + 1 + 2*4
	for _, retries := range []int{3, 0} {
		for after := range commands {
			t.Run(fmt.Sprintf("%d retries/after command %d", retries, after+1), func(t *testing.T) {
				t.Parallel()
				outside := newRig(t, server.Client(t))
				queue := strings.ReplaceAll(t.Name(), "/", ".")
				lease := outside.hold(queue)
				r := newRig(t, server.Client(t))
				released := make(chan struct{})
				var sent atomic.Int32
				r.countCommands(func(name string) {
					if name == "enqueue" || sent.Add(1) != int32(after)+1 {
						return
					}
					defer close(released)
					if err := lease.Release(context.Background()); err != nil {
						t.Error(err)
					}
					if !lease.ShouldNotify() {
						return
					}
					left, err := (*line.Engine)(outside.queue).Front(context.Background(), queue)
					if err == nil && len(left.Next) > 0 {
						_, err = (*line.Engine)(outside.queue).WakeTask(context.Background(), queue, left.Next[0])
					}
					if err != nil {
						t.Error(err)
					}
				})
				s := &script{}
				outside.queued(queue, 1, 3, asynq.Queue(queue), asynq.MaxRetry(retries))
				r.serve(r.options(inTurn["FIFO"]), asynq.Config{Concurrency: 3, Queues: map[string]int{queue: 1}}, s.handle)
				receive(t, released)
				s.sees(r, prompt, 1, 2, 3)
				r.until(prompt, "the sequence is left", func() bool {
					return r.client.Exists(context.Background(), "railtoken:sequence:{"+queue+"}", "railtoken:waiters:{"+queue+"}").Val() == 0
				})
				parked := r.client.ZRange(context.Background(), "railtoken:parked", 0, -1).Val()
				if slices.ContainsFunc(parked, func(entry string) bool { return strings.Contains(entry, queue+"-") }) {
					t.Errorf("in the index are still %v", parked)
				}
			})
		}
	}
}

// afterLeaving calls do once, when a task has left its sequence and has not released its key.
type afterLeaving struct {
	sequence string
	once     *sync.Once
	do       func()
}

func (afterLeaving) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a afterLeaving) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		args := cmd.Args() // evalsha, hash, 3 keys: the sequence, the waiters and the index; how many to name, and the leaver
		if strings.HasPrefix(cmd.Name(), "eval") && len(args) > 7 && fmt.Sprint(args[2]) == "3" && args[3] == a.sequence && args[7] != "" && err == nil {
			a.once.Do(a.do)
		}
		return err
	}
}

func (afterLeaving) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestATaskThatArrivesAsTheLastLeavesIsWoken(t *testing.T) {
	t.Parallel()
	inEachOrder(t, func(r *rig, strategy middleware.Requeue) {
		r.client.AddHook(afterLeaving{"railtoken:sequence:{order:1}", new(sync.Once), func() {
			r.queued("order:1", 2, 1)
			r.events.await(r, 1, parked)
		}})
		s, opts := &script{}, r.options(strategy)
		opts.Locker = struct{ locking.Locker }{r.locker} // whose keys no acknowledgement releases
		r.serve(opts, asynq.Config{Concurrency: 4}, s.handle)
		r.queued("order:1", 1, 1)
		s.sees(r, soon, 1, 2)
	})
}
