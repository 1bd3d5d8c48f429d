package middleware_test

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

func TestALiveWaiterBehindDeadOnesRunsWithinASecond(t *testing.T) {
	t.Parallel()
	const dead = 100
	for name, c := range map[string]struct {
		queue string
		opts  func() []asynq.Option
		die   func(r *rig, other *asynq.Server)
	}{
		"their deadlines have passed": {"default", func() []asynq.Option { return []asynq.Option{asynq.Deadline(time.Now().Add(8 * time.Second))} }, func(*rig, *asynq.Server) {
			<-time.After(10 * time.Second)
		}},
		"their queue is paused": {"other", nil, func(r *rig, _ *asynq.Server) {
			if err := r.inspect.PauseQueue("other"); err != nil {
				r.Fatal(err)
			}
		}},
		"no server works on their queue": {"other", nil, func(_ *rig, other *asynq.Server) { other.Shutdown() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				lease, ran := r.hold("order:1"), make(chan int, dead+1)
				handler := func(_ context.Context, task *asynq.Task) error {
					ran <- int(task.Payload()[0])
					return nil
				}
				opts := r.options(never)
				opts.Key = func(context.Context, *asynq.Task) ([]string, error) { return []string{"order:1"}, nil }
				var other *asynq.Server
				if c.queue != "default" {
					other = r.serve(opts, asynq.Config{Concurrency: 4, Queues: map[string]int{c.queue: 1}}, handler)
				}
				r.serve(opts, asynq.Config{Concurrency: 4}, handler)
				enqueue := func(queue string, is byte, more ...asynq.Option) {
					if _, err := r.tasks.Enqueue(asynq.NewTask("test", []byte{is}), append(more, asynq.Queue(queue), asynq.MaxRetry(3))...); err != nil {
						r.Fatal(err)
					}
				}
				for range dead {
					var more []asynq.Option
					if c.opts != nil {
						more = c.opts()
					}
					enqueue(c.queue, 0, more...)
				}
				r.events.await(r, dead, parked)
				enqueue("default", 1)
				r.events.await(r, dead+1, parked)
				c.die(r, other)
				r.giveBack(lease)
				released := time.Now()
				for which := 0; which != 1; {
					if which = receive(r.T, ran); which == 0 {
						r.Error("a dead one ran")
					}
				}
				if took := time.Since(released); took > time.Second {
					r.Errorf("it ran %v after the release", took)
				} else {
					r.Logf("it ran %v after the release", took)
				}
			})
		})
	}
}
