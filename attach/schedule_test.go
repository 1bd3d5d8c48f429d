package attach_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// replica is one of several processes with the same schedule.
type replica struct {
	name   string
	client *redis.Client
	*attach.Attached

	mu     sync.Mutex
	until  time.Time // its calls stand still
	errors []error   // of its scheduler
}

// stall is a hook that has calls reach Redis late.
func (r *replica) stall(ctx context.Context) {
	r.mu.Lock()
	late := time.Until(r.until)
	r.mu.Unlock()
	if late > 0 && ctx.Err() == nil {
		time.Sleep(late)
	}
}

func (r *replica) DialHook(next redis.DialHook) redis.DialHook { return next }
func (r *replica) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		r.stall(ctx)
		return next(ctx, cmd)
	}
}

func (r *replica) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		r.stall(ctx)
		return next(ctx, cmds)
	}
}

// entries has two entries: one each second, and one on the minute.
func (r *replica) entries() ([]*asynq.PeriodicTaskConfig, error) {
	task := func(kind string) *asynq.Task { return asynq.NewTask(kind, []byte(r.name)) }
	opts := []asynq.Option{asynq.Queue("ticks")}
	return []*asynq.PeriodicTaskConfig{{Cronspec: "@every 1s", Task: task("second"), Opts: opts}, {Cronspec: "* * * * *", Task: task("minute"), Opts: opts}}, nil
}

// GetConfigs is for a PeriodicTaskManager.
func (r *replica) GetConfigs() ([]*asynq.PeriodicTaskConfig, error) { return r.entries() }

func (r *replica) opts() *asynq.SchedulerOpts {
	return &asynq.SchedulerOpts{LogLevel: asynq.FatalLevel, PostEnqueueFunc: func(_ *asynq.TaskInfo, err error) {
		if err != nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.errors = append(r.errors, err)
		}
	}}
}

// scheduler makes asynq's Scheduler with the entries.
func (r *replica) scheduler(client redis.UniversalClient) (attach.Scheduler, error) {
	s := asynq.NewSchedulerFromRedisClient(client, r.opts())
	entries, _ := r.entries()
	for _, e := range entries {
		if _, err := s.Register(e.Cronspec, e.Task, e.Opts...); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// manager makes asynq's PeriodicTaskManager with them.
func (r *replica) manager(client redis.UniversalClient) (attach.Scheduler, error) {
	return asynq.NewPeriodicTaskManager(asynq.PeriodicTaskManagerOpts{RedisUniversalClient: client, PeriodicTaskConfigProvider: r, SchedulerOpts: r.opts()})
}

// tick is a firing that was enqueued.
type tick struct {
	kind, by string
	at       time.Time
}

// ticks returns the firings, in their order.
func ticks(t *testing.T, client redis.UniversalClient) (all []tick) {
	t.Helper()
	infos, err := asynq.NewInspectorFromRedisClient(client).ListPendingTasks("ticks", asynq.PageSize(1000))
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range infos { // the oldest first
		ns, err := strconv.ParseInt(client.HGet(t.Context(), "asynq:{ticks}:t:"+info.ID, "pending_since").Val(), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, tick{info.Type, string(info.Payload), time.Unix(0, ns)})
	}
	return all
}

// leader returns the replica that has fired last.
func leader(t *testing.T, client redis.UniversalClient, all []*replica) *replica {
	t.Helper()
	fired := ticks(t, client)
	for _, r := range all {
		if len(fired) > 0 && fired[len(fired)-1].by == r.name {
			return r
		}
	}
	t.Fatal("none has fired")
	return nil
}

func TestEachTickOfAScheduleIsFiredOnce(t *testing.T) {
	t.Parallel()
	for name, build := range map[string]func(r *replica) func(redis.UniversalClient) (attach.Scheduler, error){
		"Scheduler":           func(r *replica) func(redis.UniversalClient) (attach.Scheduler, error) { return r.scheduler },
		"PeriodicTaskManager": func(r *replica) func(redis.UniversalClient) (attach.Scheduler, error) { return r.manager },
	} {
		for change, leave := range map[string]struct {
			do  func(t *testing.T, r *replica)
			gap time.Duration // the longest time without a tick
		}{
			"ends":    {func(t *testing.T, r *replica) { ok(t, r.Close()) }, 2 * time.Second},
			"crashes": {func(t *testing.T, r *replica) { ok(t, r.client.Close()) }, 7 * time.Second},
			"stalls": {func(_ *testing.T, r *replica) {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.until = time.Now().Add(20 * time.Second) // over the minute
			}, 7 * time.Second},
		} {
			t.Run(name+" "+change, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					t.Cleanup(func() { time.Sleep(time.Second) }) // go-redis sleeps before it sees that a subscription is closed
					m, client := redistest.Virtual(t)
					time.Sleep(40 * time.Second) // both leave shortly before the minute
					var all []*replica
					for i := range 3 {
						r := &replica{name: fmt.Sprint("replica ", i), client: redistest.VirtualClient(t, m)}
						r.client.AddHook(r)
						var err error
						r.Attached, err = attach.New(r.client, asynq.Config{}, attach.Options{Logger: slog.New(slog.DiscardHandler)})
						ok(t, err)
						t.Cleanup(func() { _ = r.Close() })
						ok(t, r.Schedule("ticks", build(r)))
						all = append(all, r)
					}
					began := time.Now()
					time.Sleep(10 * time.Second)
					leave.do(t, leader(t, client, all))
					time.Sleep(60 * time.Second)
					leave.do(t, leader(t, client, all))
					time.Sleep(25 * time.Second)
					check(t, ticks(t, client), began, leave.gap)
					for _, r := range all {
						if len(r.errors) > 0 && change != "crashes" {
							t.Errorf("the scheduler of %s is told of %v", r.name, r.errors)
						}
					}
				})
			})
		}
	}
}

// check fails the test unless each tick was fired once, by one replica at a time.
func check(t *testing.T, fired []tick, began time.Time, gap time.Duration) {
	t.Helper()
	leaders, last, minutes := []string{}, began, 0
	for _, f := range fired {
		if len(leaders) == 0 || leaders[len(leaders)-1] != f.by {
			leaders = append(leaders, f.by)
		}
		if f.kind == "minute" {
			minutes++
			continue
		}
		if since := f.at.Sub(last); since > gap || since < time.Second && last != began {
			t.Errorf("%v after the tick before comes one of %s", since, f.by)
		}
		last = f.at
	}
	if minutes != int(time.Since(began.Truncate(time.Minute))/time.Minute) || len(leaders) != 3 || leaders[0] == leaders[1] || leaders[1] == leaders[2] {
		t.Errorf("%d minutes by %v", minutes, leaders)
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAFaultyScheduleIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.attach(asynq.Config{}, attach.Options{})
	fault := errors.New("the caller's")
	if err := a.Schedule("ticks", func(redis.UniversalClient) (attach.Scheduler, error) { return nil, fault }); !errors.Is(err, fault) {
		t.Errorf("a scheduler that cannot be made: %v", err)
	}
	if err := a.Schedule("", (&replica{}).scheduler); err == nil || !strings.Contains(err.Error(), "needs a name") {
		t.Errorf("no name: %v", err)
	}
	if err := a.Schedule("ticks", nil); err == nil || !strings.Contains(err.Error(), "function") {
		t.Errorf("no function: %v", err)
	}
}

func TestAScheduleOnAClusterFiresAndEnds(t *testing.T) {
	t.Parallel()
	client := redistest.StartCluster(t, 3).Client(t)
	r := &replica{name: "alone"}
	a, err := attach.New(client, asynq.Config{}, attach.Options{})
	ok(t, err)
	ok(t, a.Schedule("ticks", r.scheduler))
	pending := func() int64 { return client.LLen(t.Context(), "asynq:{ticks}:pending").Val() }
	for began := time.Now(); pending() < 2 && time.Since(began) < limit; {
		<-time.After(10 * time.Millisecond)
	}
	ok(t, a.Close())
	if n := len(ticks(t, client)); n < 2 || len(r.errors) > 0 {
		t.Errorf("%d ticks, %v", n, r.errors)
	}
}
