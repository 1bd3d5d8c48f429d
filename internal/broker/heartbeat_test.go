package broker

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

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
