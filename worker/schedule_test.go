package worker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

func TestAWorkerRunsASchedule(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, m := virtual(t, Config{})
		ran := make(chan string, 10)
		if err := w.HandleTask("tick", typed("handler of", ran), nil); err != nil {
			t.Fatal(err)
		}
		err := w.Schedule("ticks", func(client redis.UniversalClient) (attach.Scheduler, error) {
			s := asynq.NewSchedulerFromRedisClient(client, &asynq.SchedulerOpts{LogLevel: asynq.FatalLevel})
			_, err := s.Register("@every 1s", asynq.NewTask("tick", nil))
			return s, err
		})
		if err != nil {
			t.Fatal(err)
		}
		start(t, w)
		for range 3 {
			if got := <-ran; got != "handler of tick" {
				t.Errorf("%q has run", got)
			}
		}
		if err := w.Shutdown(); err != nil {
			t.Fatal(err)
		}
		client := redistest.VirtualClient(t, m)
		time.Sleep(5 * time.Second)
		if n := client.LLen(t.Context(), "asynq:{default}:pending").Val(); n > 0 {
			t.Errorf("%d ticks were fired after the shutdown", n)
		}
	})
}
