package intake_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqconn/intake"
	"github.com/railtoken/railtoken/internal/fused"
	"github.com/railtoken/railtoken/internal/redistest"
)

// Redis cannot be reached until the process ends. Whether an acknowledgement has released the locks of its task is then
// not known, so they are released on their own, and the handler learns what comes of that.
func TestAnAcknowledgementThatIsGivenUpReleasesItsLocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, admin := redistest.Virtual(t)
		client := redistest.Patient(t, m)
		enqueue(t, admin, "default", 1)
		closing, end := context.WithCancel(t.Context())
		in := intake.New(client, intake.Options{Slots: 1, Background: func(_ time.Duration, do func(context.Context)) bool {
			go do(closing)
			return true
		}})
		if _, err := in.Fetch(t.Context(), "default"); err != nil {
			t.Fatal(err)
		}
		if _, ok := in.Take(); !ok {
			t.Fatal("the task is missing")
		}
		client.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if strings.HasPrefix(cmd.Name(), "eval") {
				return redistest.Fail(cmd, errors.New("connection reset by peer"))
			}
			return next(ctx, cmd)
		}))
		var sent atomic.Bool
		down := errors.New("down")
		release := fused.NewRelease([]string{"lock", "fence", "notify"}, "owner", []int64{1},
			func(context.Context, bool) (fused.Outcome, error) {
				sent.Store(true)
				return fused.Outcome{Notify: true}, down
			})
		outcome := make(chan error, 1)
		release.Then(func(_ fused.Outcome, err error) { outcome <- err })
		ok, err := in.Acknowledge(t.Context(), intake.Acknowledgement{
			Queue: "default", ID: "default0", Text: doneText, Release: release,
			Keys: []string{"asynq:{default}:t:default0", "asynq:{default}:active"}, Args: []any{"default0"},
		})
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		end()
		if err := <-outcome; !sent.Load() || !errors.Is(err, down) {
			t.Errorf("the release was sent: %t, and has ended with %v", sent.Load(), err)
		}
	})
}
