package broker

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// asynq may take the run that has just ended for the next one of the same task until its heartbeat is over.
func TestATaskRestsDuringAHeartbeat(t *testing.T) {
	t.Parallel()
	const beats = 50 * time.Millisecond // a task may lie in memory for twice as long
	for key, rests := range map[string]bool{
		"asynq:servers": true, "asynq:workers": true, "asynq:{default}:lease": true, "asynq:schedulers": false,
		"asynq:servers:{me}": true, // by a script
	} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, client := newVirtual(t)
				conn := New(client, Options{
					Queues: numbered(1), Slots: 3, Tasks: &witness{answers: func(Acknowledgement) (bool, error) { return false, nil }},
				})
				enqueue(t, client, "a", "")
				if cmd, _ := conn.fetch(t.Context(), queueKeys); cmd.Err() != nil {
					t.Fatal(cmd.Err())
				}
				if err := ack(t.Context(), conn); err != nil {
					t.Fatal(err)
				}
				enqueue(t, client, "a", "")
				client.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
					if (cmd.Name() == "zadd" || kindOf(cmd) == Beat) && strings.Contains(cmd.String(), key) {
						time.Sleep(beats)
					}
					return next(ctx, cmd)
				}))
				beat := func() { conn.ZAdd(t.Context(), key, redis.Z{Member: "a", Score: 1}) }
				switch {
				case strings.HasSuffix(key, "lease"):
					beat = func() { conn.ZAddXX(t.Context(), key, redis.Z{Member: "a", Score: 1}) }
				case strings.HasSuffix(key, "}"):
					beat = func() { conn.EvalSha(t.Context(), sumNamed(t, "writeServerState"), []string{key}) }
				}
				began, over := time.Now(), make(chan struct{})
				go func() {
					defer close(over)
					beat()
				}()
				synctest.Wait()
				if cmd, _ := conn.fetch(t.Context(), queueKeys); cmd.Err() != nil {
					t.Error(cmd.Err())
				}
				if took := time.Since(began); (took >= beats) != rests || took > 2*beats {
					t.Errorf("the task comes after %v; the heartbeat has taken %v", took, beats)
				}
				<-over
			})
		})
	}
}

// A master hangs on which are the state of a server and running tasks. Its heartbeat goes on for the others, and tasks begin there.
func TestAHeartbeatWaitsForNoMasterThatHangs(t *testing.T) {
	t.Parallel()
	ctx, l := t.Context(), newLanes(t, manyLanes)
	c := robustCluster(t, 3)
	client := c.Client(t)
	began, ends := make(chan string, 100), make(chan struct{})
	inLanesOn(t, client, Options{Lanes: l}, asynq.Config{Queues: someQueues, Concurrency: 8}, func(ctx context.Context, _ *asynq.Task) error {
		queue, _ := asynq.GetQueueName(ctx)
		began <- queue
		if lanes.Base(queue) == "mail" {
			<-ends
		}
		return nil
	})
	t.Cleanup(sync.OnceFunc(func() { close(ends) }))
	tasks := asynq.NewClientFromRedisClient(client) // it knows the queues, and so needs one master for each task
	enqueue := func(queue string) {
		t.Helper()
		if _, err := tasks.Enqueue(asynq.NewTask("test", nil), asynq.Queue(queue)); err != nil {
			t.Fatal(err)
		}
	}
	runs := func(queue string) {
		t.Helper()
		enqueue(queue)
		_, lane, _ := lanes.Split(queue)
		client.Publish(ctx, lanes.ReadyChannel(lane), queue)
		redistest.Receive(t, began, patience)
	}
	for lane := range l.Count() {
		runs(l.Queue("orders", lane))
	}
	var hung *redistest.Server
	for _, node := range c.Nodes() {
		if len(node.Client(t).Keys(ctx, "asynq:servers:{*").Val()) > 0 {
			hung = node
		}
	}
	theirs, others := lanesOn(t, client, l, hung)
	long := l.Queue("mail", others[0])
	for _, queue := range []string{l.Queue("mail", theirs[0]), l.Queue("mail", theirs[1]), l.Queue("mail", theirs[2]), long} {
		runs(queue)
	}
	hung.Pause()
	t.Cleanup(sync.OnceFunc(hung.Resume))
	var worst time.Duration
	hangs := time.Now()
	for i := 0; time.Since(hangs) < 7*time.Second; i++ {
		queue := l.Queue("orders", others[i%len(others)])
		at := time.Now()
		enqueue(queue)
		redistest.Receive(t, began, patience)
		worst = max(worst, time.Since(at))
	}
	t.Logf("a task begins after %v at most", worst)
	if worst > laneLooks*laneLookEach+2*time.Second {
		t.Errorf("while a master hangs, a task on another begins only after %v", worst)
	}
	if ends := client.ZScore(ctx, asynqwire.Lease(long), client.ZRange(ctx, asynqwire.Lease(long), 0, 0).Val()[0]).Val(); ends < float64(hangs.Add(30*time.Second).Unix()) {
		t.Errorf("the lease of a task on another master was not extended for %v", time.Since(hangs))
	}
}
