package attach_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// An idle server costs Redis little, those included that scripts call, and starts a task as soon as when each of its looks
// was a script.
func TestAnIdleServerSendsFewCommands(t *testing.T) {
	t.Parallel()
	for queues, most := range map[int]float64{1: 30, 3: 60} {
		t.Run(fmt.Sprint(queues), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			client := server.Client(t)
			served := map[string]int{"default": 1}
			for i := 1; i < queues; i++ {
				served[fmt.Sprint("q", i)] = 1
			}
			began := make(chan time.Time, 1)
			a := attached(t, client, asynq.Config{Queues: served, LogLevel: asynq.FatalLevel, Concurrency: 10}, attach.Options{Recovery: soon})
			s := asynq.NewServerFromRedisClient(a.Client(), a.Config())
			if err := s.Start(a.Unlocked(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
				began <- time.Now()
				return nil
			}))); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.Shutdown)
			tasks := asynq.NewClientFromRedisClient(server.Client(t))
			var took []time.Duration
			for i := range 100 {
				<-time.After(time.Duration(i%7) * 11 * time.Millisecond)
				at := time.Now()
				if _, err := tasks.Enqueue(asynq.NewTask("test", nil)); err != nil {
					t.Fatal(err)
				}
				took = append(took, receive(t, began).Sub(at))
			}
			slices.Sort(took)
			<-time.After(soon.After) // then its queues are swept, too
			from := carriedOut(t, client)
			<-time.After(10 * time.Second)
			rate := float64(carriedOut(t, client)-from) / 10
			t.Logf("%d queues: %.1f commands a second; a task starts after %v (p50), %v (p95)", queues, rate, took[50], took[95])
			if rate > most {
				t.Errorf("an idle server sends %.1f commands a second, want %.0f at most", rate, most)
				t.Log(client.Info(t.Context(), "commandstats").Val())
			}
		})
	}
}

// carriedOut returns how many commands Redis has carried out, those included that scripts have called.
func carriedOut(t *testing.T, client redis.UniversalClient) (n int) {
	t.Helper()
	for line := range strings.SplitSeq(client.Info(t.Context(), "commandstats").Val(), "\r\n") {
		_, stat, _ := strings.Cut(line, ":calls=")
		var calls int
		if _, err := fmt.Sscan(strings.SplitN(stat, ",", 2)[0], &calls); err == nil {
			n += calls
		}
	}
	return n
}
