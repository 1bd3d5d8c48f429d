package attach_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// fleet is a worker that looks after the others, which are of other processes and exist in Redis alone.
type fleet struct {
	*testing.T
	seen recoveries
	ran  chan string

	finish chan struct{} // ends the long task
	m      *miniredis.Miniredis
	client *redis.Client
	down   atomic.Bool // Redis does not answer
	silent atomic.Bool // nor does the other worker report
	back   atomic.Bool // it reports just after each sweep
}

// inVirtualTime runs a test of a fleet, with the shortest recovery.
func inVirtualTime(t *testing.T, test func(f *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{T: t, ran: make(chan string, 100), finish: make(chan struct{})}
		f.m, f.client = redistest.Virtual(t)
		ours := redistest.Patient(t, f.m)
		ours.AddHook(f)
		a, err := attach.New(ours, asynq.Config{Concurrency: 10, LogLevel: asynq.FatalLevel},
			attach.Options{Recovery: soon, Observer: f.seen.observe, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		s := asynq.NewServerFromRedisClient(a.Client(), a.Config())
		if err := s.Start(handlers(a, func(ctx context.Context, _ *asynq.Task) error {
			id, _ := asynq.GetTaskID(ctx)
			f.ran <- id
			if id == "poison" { // the process that runs it dies, so its acknowledgement says nothing
				f.client.ZAdd(ctx, "railtoken:workers", redis.Z{Score: float64(time.Now().UnixMilli()), Member: "POISONED10x"})
				f.client.HSet(ctx, "asynq:{default}:t:poison", "pending_since", "0123456789abcdefPOISONED.1")
			}
			if id == "long" {
				<-f.finish
			}
			return nil
		})); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		reported := make(chan struct{})
		go func() {
			defer close(reported)
			for ctx.Err() == nil {
				if !f.down.Load() && !f.silent.Load() {
					f.signs(ctx)
				}
				select {
				case <-time.After(5 * time.Second):
				case <-ctx.Done():
				}
			}
		}()
		test(f)
		cancel()
		<-reported
		f.down.Store(false)
		s.Shutdown()
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
}

// signs has the other worker report.
func (f *fleet) signs(ctx context.Context) {
	f.client.ZAdd(ctx, "railtoken:workers", redis.Z{Score: float64(time.Now().UnixMilli()), Member: "OTHEROOO10x"})
}

var errDown = errors.New("connection refused")

// DialHook changes nothing.
func (f *fleet) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook has no call answered while Redis is down.
func (f *fleet) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if f.down.Load() {
			return redistest.Fail(cmd, errDown)
		}
		err := next(ctx, cmd)
		if f.back.Load() && strings.Contains(fmt.Sprint(cmd.Args()), "railtoken:recovery:") {
			f.signs(ctx)
		}
		return err
	}
}

// ProcessPipelineHook does the same.
func (f *fleet) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, all []redis.Cmder) error {
		if f.down.Load() {
			for _, cmd := range all {
				cmd.SetErr(errDown)
			}
			return errDown
		}
		return next(ctx, all)
	}
}

// runs adds a task that another server runs, and keeps asynq's lease on it for an hour; without a lease if that is false.
func (f *fleet) runs(id, run string, leased bool) {
	f.Helper()
	const prefix = "asynq:{default}:"
	f.client.Set(f.Context(), prefix+"paused", "1", 0)
	info, err := asynq.NewClientFromRedisClient(f.client).Enqueue(asynq.NewTask(withoutKey, nil), asynq.TaskID(id), asynq.MaxRetry(0))
	if err != nil {
		f.Fatal(err)
	}
	f.client.LMove(f.Context(), prefix+"pending", prefix+"active", "RIGHT", "LEFT")
	f.client.HDel(f.Context(), prefix+"t:"+info.ID, "pending_since")
	f.client.HSet(f.Context(), prefix+"t:"+info.ID, "state", "active")
	if run != "" {
		f.client.HSet(f.Context(), prefix+"t:"+info.ID, "pending_since", run)
	}
	if leased {
		f.client.ZAdd(f.Context(), prefix+"lease", redis.Z{Score: float64(time.Now().Add(time.Hour).Unix()), Member: id})
	}
	f.client.Del(f.Context(), prefix+"paused")
}

// taken returns the tasks that have run again, after so long.
func (f *fleet) taken(after time.Duration) string {
	time.Sleep(after)
	synctest.Wait()
	var all []string
	for len(f.ran) > 0 {
		all = append(all, <-f.ran)
	}
	return strings.Join(all, " ")
}

// expect checks that.
func (f *fleet) expect(after time.Duration, want string) {
	f.Helper()
	if got := f.taken(after); got != want {
		f.Errorf("after %v these run again: %q, want %q", after, got, want)
	}
}

// Their names are as a server of this release, of an earlier one, and one without railtoken leave them.
func TestOnlyRunsOfDeadWorkersAreTakenBack(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(f *fleet) {
		f.runs("other", "0123456789abcdefOTHEROOO.1", true)
		f.runs("unheard", "0123456789abcdefUNHEARDO.1", true)
		f.runs("earlier", "ABCDEFGHIJKLMNOPQRSTUVWXYZ.1", true)
		f.runs("plain", "", true)
		f.expect(time.Minute, "")
		f.silent.Store(true)
		f.expect(4*time.Second, "")
		f.expect(7*time.Second, "other")
		f.expect(5*time.Minute, "")
		if n := f.seen.sum(); n != 1 {
			f.Errorf("%d events tell of it", n)
		}
	})
}

// It was stopped, say, and goes on while the others take back its tasks.
func TestAWorkerThatIsHeardDuringASweepKeepsItsTasks(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(f *fleet) {
		f.runs("other", "0123456789abcdefOTHEROOO.1", true)
		f.expect(30*time.Second, "")
		f.back.Store(true)
		f.silent.Store(true)
		f.expect(time.Minute, "")
		f.back.Store(false)
		f.expect(20*time.Second, "other")
	})
}

// Redis is away for longer than After, and nobody reports meanwhile.
func TestAfterAnOutageEverybodyHasTimeToReport(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(f *fleet) {
		f.runs("other", "0123456789abcdefOTHEROOO.1", true)
		f.expect(30*time.Second, "")
		for range 3 {
			f.down.Store(true)
			f.expect(25*time.Second, "")
			f.down.Store(false)
			f.expect(30*time.Second, "")
		}
		f.down.Store(true)
		f.silent.Store(true)
		f.expect(25*time.Second, "")
		f.down.Store(false)
		f.expect(9*time.Second, "")
		f.expect(5*time.Second, "other")
	})
}

// asynq itself would never run it again.
func TestATaskWithoutALeaseRunsAgainUnlessAServerRunsIt(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(f *fleet) {
		time.Sleep(20 * time.Second)
		f.runs("lost", "", false)
		f.runs("of a live process", "0123456789abcdefOTHEROOO.1", false)
		got := f.taken(30 * time.Second)
		if got != "lost of a live process" && got != "of a live process lost" {
			f.Errorf("within 30 s these run again: %q", got)
		}
		if _, err := asynq.NewClientFromRedisClient(f.client).Enqueue(asynq.NewTask(withoutKey, nil), asynq.TaskID("long")); err != nil {
			f.Fatal(err)
		}
		f.expect(time.Second, "long")
		f.client.ZRem(f.Context(), "asynq:{default}:lease", "long")
		f.expect(time.Minute, "")
		close(f.finish)
	})
}

// It has no retry left.
func TestATaskThatKillsItsWorkersRunsThreeTimes(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(f *fleet) {
		if _, err := asynq.NewClientFromRedisClient(f.client).Enqueue(asynq.NewTask(withoutKey, nil), asynq.TaskID("poison"), asynq.MaxRetry(0)); err != nil {
			f.Fatal(err)
		}
		f.expect(2*time.Minute, "poison poison poison")
		f.expect(3*time.Minute, "")
		info, err := asynq.NewInspectorFromRedisClient(f.client).GetTaskInfo("default", "poison")
		if err != nil || info.State != asynq.TaskStateArchived || info.LastErr != asynq.ErrLeaseExpired.Error() {
			f.Errorf("%+v, %v", info, err)
		}
		if n := f.seen.sum(); n != 2 {
			f.Errorf("it was taken back %d times", n)
		}
	})
}

func TestARecoveryThatCannotBeIsRefused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		opts attach.Options
		want []string
	}{
		"too soon":            {attach.Options{Recovery: attach.Recovery{After: 9 * time.Second}}, []string{"Recovery.After is 9s: give whole seconds from 10s"}},
		"too late":            {attach.Options{Recovery: attach.Recovery{After: time.Minute}}, []string{"to 45s"}},
		"half a second":       {attach.Options{Recovery: attach.Recovery{After: 10500 * time.Millisecond}}, []string{"give whole seconds"}},
		"no deaths":           {attach.Options{Recovery: attach.Recovery{Deaths: -1}}, []string{"Recovery.Deaths is -1: give at least 1"}},
		"off with deaths":     {attach.Options{Recovery: attach.Recovery{After: -1, Deaths: 2}}, []string{"remove one of them"}},
		"without reports":     {attach.Options{Recovery: soon, DisableReports: true}, []string{"DisableReports"}},
		"two things at once":  {attach.Options{Recovery: attach.Recovery{After: 1, Deaths: -1}}, []string{"Recovery.After is 1ns", "Recovery.Deaths is -1"}},
		"off":                 {attach.Options{Recovery: attach.Recovery{After: -1}}, nil},
		"off without reports": {attach.Options{DisableReports: true}, nil},
	} {
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		a, err := attach.New(client, asynq.Config{}, tt.opts)
		for _, want := range tt.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
		if err == nil {
			ok(t, a.Close())
		} else if len(tt.want) == 0 {
			t.Errorf("%s: %v", name, err)
		}
		ok(t, client.Close())
	}
}
