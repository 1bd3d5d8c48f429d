package intake_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/broker/intake"
	"github.com/railtoken/railtoken/internal/colocated"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// givenUp makes an acknowledgement whose calls, and those that repeat it, fail as fail says. The process ends a second
// later. It returns how long the repetitions took to end then.
func givenUp(t *testing.T, release *colocated.Release, fail func(ctx context.Context) error) (took time.Duration) {
	t.Helper()
	return lasting(t, time.Second, release, fail)
}

// lasting does what givenUp does, but the process ends after some other time.
func lasting(
	t *testing.T, lasts time.Duration, release *colocated.Release, fail func(ctx context.Context) error,
) (took time.Duration) {
	t.Helper()
	m, admin := redistest.Virtual(t)
	client := redistest.Patient(t, m)
	enqueue(t, admin, "default", 1)
	closing, end := context.WithCancel(t.Context())
	var mu sync.Mutex
	repeating, over := 0, sync.NewCond(&mu) // not a WaitGroup: a call may begin to be repeated while others end
	in := intake.New(client, intake.Options{Slots: 1, Background: func(_ time.Duration, do func(context.Context)) bool {
		mu.Lock()
		defer mu.Unlock()
		repeating++
		go func() {
			do(closing)
			mu.Lock()
			defer mu.Unlock()
			repeating--
			over.Broadcast()
		}()
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
			if err := fail(ctx); err != nil {
				return redistest.Fail(cmd, err)
			}
		}
		return next(ctx, cmd)
	}))
	ok, err := in.Acknowledge(t.Context(), intake.Acknowledgement{
		Queue: "default", ID: "default0", Text: doneText, Release: release,
		Keys: []string{"asynq:{default}:t:default0", "asynq:{default}:active"}, Args: []any{"default0"},
	})
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	<-time.After(lasts)
	end()
	began := time.Now()
	mu.Lock()
	defer mu.Unlock()
	for repeating > 0 {
		over.Wait()
	}
	return time.Since(began)
}

// Whether an acknowledgement has released the locks of its task is not known then, so they are released on their own, and
// the handler learns what comes of that.
func TestAnAcknowledgementThatIsGivenUpReleasesItsLocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		down, sent := errors.New("down"), false
		release := colocated.NewRelease([]string{"lock", "fence", "notify"}, "owner", []int64{1},
			func(context.Context, bool) (colocated.Outcome, error) {
				sent = true
				return colocated.Outcome{Notify: true}, down
			})
		var outcome error
		release.Then(func(_ colocated.Outcome, err error) { outcome = err })
		givenUp(t, release, func(context.Context) error { return errors.New("connection reset by peer") })
		if !sent || !errors.Is(outcome, down) {
			t.Errorf("the release was sent: %t, and has ended with %v", sent, outcome)
		}
	})
}

// Redis hangs while the process ends.
func TestARepeatedAcknowledgementEndsWithTheProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		took := givenUp(t, nil, func(ctx context.Context) error {
			deadline, _ := ctx.Deadline()
			<-time.After(time.Until(deadline))
			return context.DeadlineExceeded
		})
		if took > 0 {
			t.Errorf("it has ended %v after the process", took)
		}
		time.Sleep(time.Minute) // virtual: the call that is under way ends
	})
}

// Redis is away for a minute. The acknowledgement is repeated, and so is the recall of the fetch that went with it. None of the
// repetitions has a fetch of its own, which would have to be recalled, too.
func TestAnAcknowledgementThatIsRepeatedRecallsOneFetch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		release := colocated.NewRelease(nil, "", nil, func(context.Context, bool) (o colocated.Outcome, err error) { return o, nil })
		lasting(t, time.Minute, release, func(context.Context) error {
			calls.Add(1)
			return errors.New("connection reset by peer")
		})
		if n := calls.Load(); n < 60 || n > 200 {
			t.Errorf("%d calls in a minute, want about one a second for each of two", n)
		}
	})
}

// Redis is away for a moment. The handler learns once what has become of the locks of its task.
func TestARepeatedAcknowledgementTellsItsRelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began, told := time.Now(), 0
		release := colocated.NewRelease(nil, "", nil, func(context.Context, bool) (o colocated.Outcome, err error) { return o, nil })
		release.Then(func(o colocated.Outcome, err error) {
			told++
			if !o.Scripted || err != nil {
				t.Errorf("it is told of %+v, %v", o, err)
			}
		})
		lasting(t, time.Minute, release, func(context.Context) error {
			if time.Since(began) < 10*time.Second {
				return errors.New("connection reset by peer")
			}
			return nil
		})
		if told != 1 {
			t.Errorf("it is told %d times", told)
		}
	})
}
