package line_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/linetest"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// virtually runs a test in virtual time, on a fake Redis.
func virtually(t *testing.T, test func(r *solo, m *miniredis.Miniredis)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m, client := redistest.Virtual(t)
		test(soloOn(t, client), m)
	})
}

// await waits for a value for as long as it takes in virtual time.
func await[T any](r *solo, c <-chan T) (v T) {
	r.Helper()
	select {
	case v = <-c:
	case <-time.After(time.Hour):
		r.Fatal("nothing came within an hour")
	}
	return v
}

// waitsAtItsLast fails the test when the task does not wait for k as after its first conflict, with no retry left.
func (r *solo) waitsAtItsLast(place line.Parked) {
	r.Helper()
	task := line.Task{Queue: "default", ID: "a"}
	if place.Task != task || place.Count != 1 || place.Waiters != 1 {
		r.Errorf("%+v", place)
	}
	if info, err := r.Inspect.GetTaskInfo("default", "a"); err != nil || info.State != asynq.TaskStateRetry ||
		info.Retried != 0 || info.MaxRetry != 0 {
		r.Errorf("asynq has %+v, %v", info, err)
	}
	if lists := r.everywhere("a"); !slices.Equal(lists, []string{"default retry"}) {
		r.Errorf("it is in %v", lists)
	}
	if n := conflictsOf(r.T, r.Client, task); n != 1 || !slices.Equal(r.Waiting("k"), []string{"a"}) {
		r.Errorf("it has met %d, and in line are %v", n, r.Waiting("k"))
	}
	r.refusesDuplicates(task, 50*time.Minute)
	r.uncounted()
}

// asynq repeats an acknowledgement that has failed, whether it has arrived or not.
func TestAnAcknowledgementThatIsLostParksOnce(t *testing.T) {
	t.Parallel()
	for name, arrives := range map[string]bool{"the call": false, "the reply": true} {
		for _, lost := range []int32{1, 3} {
			t.Run(fmt.Sprint(name, " is lost ", lost), func(t *testing.T) {
				t.Parallel()
				virtually(t, func(r *solo, _ *miniredis.Miniredis) {
					loss := &spoiled{arrives: arrives}
					loss.left.Store(lost)
					r.Client.AddHook(loss)
					parked := make(chan line.Parked, 10)
					linetest.Serve(r.T, r.Engine, asynq.Config{TaskCheckInterval: time.Second},
						func(ctx context.Context, _ string) error { return r.parks(ctx, parked) })
					_, err := r.Tasks.Enqueue(asynq.NewTask("test", nil), asynq.TaskID("a"), asynq.MaxRetry(0),
						asynq.Unique(30*time.Minute))
					r.OK(err)
					place := await(r, parked)
					time.Sleep(5 * time.Minute) // asynq's syncer and its recoverer have been there
					r.waitsAtItsLast(place)
					if n := len(parked); n != 0 {
						r.Errorf("who parked it is told %d times more", n)
					}
					if n := r.Engine.Runs(); n != 0 {
						r.Errorf("%d runs are remembered", n)
					}
				})
			})
		}
	}
}

// The task is woken before asynq tries again: that is for the run before, and must not end the next one.
func TestARepeatedAcknowledgementIsForItsOwnRun(t *testing.T) {
	t.Parallel()
	for _, next := range []string{"is done", "waits again"} {
		t.Run("the next "+next, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(r *solo, _ *miniredis.Miniredis) {
				loss := &spoiled{arrives: true}
				loss.left.Store(1)
				r.Client.AddHook(loss)
				var runs atomic.Int32
				linetest.Serve(r.T, r.Engine, asynq.Config{TaskCheckInterval: time.Second},
					func(ctx context.Context, _ string) error {
						n := runs.Add(1)
						if n > 1 {
							time.Sleep(20 * time.Second) // asynq's syncer has been there
						}
						if n > 1 && next == "is done" {
							return nil
						}
						return r.parks(ctx, make(chan line.Parked, 10))
					})
				_, err := r.Tasks.Enqueue(asynq.NewTask("test", nil), asynq.TaskID("a"), asynq.MaxRetry(0))
				r.OK(err)
				r.Until("it waits", func() bool { return slices.Equal(r.everywhere("a"), []string{"default retry"}) })
				if woken := r.Wake("k"); woken.First().ID != "a" {
					r.Errorf("woke %+v", woken)
				}
				time.Sleep(5 * time.Minute)
				want := map[string][]string{"is done": nil, "waits again": {"default retry"}}[next]
				if lists := r.everywhere("a"); !slices.Equal(lists, want) || runs.Load() != 2 {
					r.Errorf("after %d runs it is in %v", runs.Load(), lists)
				}
				if n := r.Engine.Runs(); n != 0 {
					r.Errorf("%d runs are remembered", n)
				}
			})
		})
	}
}

// asynq gives up a run whose lease has ended. Its recoverer would archive a task that has no retry left.
func TestAnOutageCostsAWaitingTaskNothing(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		ends   time.Duration // of the handler, after the task was fetched
		outage time.Duration // its end after the start of the servers, whose recoverers look each minute
	}{
		"its handler ends in a short one":      {5 * time.Second, 20 * time.Second},
		"its handler ends in a long one":       {5 * time.Second, 45 * time.Second},
		"its handler ends after the lease":     {time.Hour, 45 * time.Second},
		"asynq's recoverer is there at once":   {time.Hour, 119_900 * time.Millisecond},
		"asynq's recoverer is there at last":   {5 * time.Second, 179_900 * time.Millisecond},
		"it lasts longer than many attempts":   {5 * time.Second, 20 * time.Minute},
		"its handler ends after the outage":    {40 * time.Second, 35 * time.Second},
		"its handler ends as the lease does":   {30 * time.Second, 45 * time.Second},
		"its handler ends just before it does": {29_999 * time.Millisecond, 45 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(r *solo, m *miniredis.Miniredis) {
				began, done, parked := make(chan struct{}, 10), make(chan struct{}, 10), make(chan line.Parked, 10)
				var runs atomic.Int32
				start := time.Now()
				// of two processes: each may find the other's task
				for _, r := range []*solo{r, soloOn(r.T, redistest.VirtualClient(r.T, m))} {
					linetest.Serve(r.T, r.Engine, asynq.Config{TaskCheckInterval: time.Second},
						func(ctx context.Context, _ string) error {
							if runs.Add(1) > 1 {
								done <- struct{}{}
								return nil
							}
							began <- struct{}{}
							select {
							case <-ctx.Done():
							case <-time.After(tt.ends):
							}
							return r.parks(ctx, parked)
						})
				}
				_, err := r.Tasks.Enqueue(asynq.NewTask("test", nil), asynq.TaskID("a"), asynq.MaxRetry(0),
					asynq.Unique(30*time.Minute))
				r.OK(err)
				await(r, began)
				m.SetError("LOADING out of order")
				time.Sleep(time.Until(start.Add(tt.outage)))
				m.SetError("")
				place := await(r, parked)
				time.Sleep(5 * time.Minute)
				r.waitsAtItsLast(place)
				if woken := r.Wake("k"); woken.First().ID != "a" {
					r.Errorf("woke %+v", woken)
				}
				await(r, done)
				synctest.Wait()
				if n := runs.Load(); n != 2 {
					r.Errorf("it ran %d times", n)
				}
			})
		})
	}
}

// Since a plain server leaves the name of the run as it is, only its lease tells that the run is another's.
func TestARunOfAPlainServerIsNotParked(t *testing.T) {
	t.Parallel()
	virtually(t, func(r *solo, m *miniredis.Miniredis) {
		plain := redistest.VirtualClient(r.T, m)
		var cut atomic.Bool
		r.Client.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if cut.Load() {
				return redistest.Fail(cmd, errBroken)
			}
			return next(ctx, cmd)
		}))
		parked := make(chan line.Parked, 1)
		linetest.Serve(r.T, r.Engine, asynq.Config{TaskCheckInterval: time.Second},
			func(ctx context.Context, _ string) error {
				cut.Store(true)
				return r.parks(ctx, parked)
			})
		_, err := r.Tasks.Enqueue(asynq.NewTask("test", nil), asynq.TaskID("a"))
		r.OK(err)
		r.Until("the server is cut off", cut.Load)
		time.Sleep(40 * time.Second)
		r.OK(plain.ZAdd(r.Context(), "asynq:{default}:lease",
			redis.Z{Score: float64(time.Now().Add(5 * time.Minute).Unix()), Member: "a"}).Err())
		cut.Store(false)
		time.Sleep(4 * time.Minute)
		if lists := r.everywhere("a"); !slices.Equal(lists, []string{"default active", "default lease"}) ||
			len(parked) > 0 {
			r.Errorf("it is in %v", lists)
		}
	})
}

// asynq's recoverer would archive a task that has no retry left.
func TestCloseWaitsForParksUnderWay(t *testing.T) {
	t.Parallel()
	for _, outage := range []time.Duration{5 * time.Second, time.Minute} {
		virtually(t, func(r *solo, m *miniredis.Miniredis) {
			parked := make(chan line.Parked, 1)
			var log bytes.Buffer
			queue, err := line.New(r.Client, line.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			r.OK(err)
			r.Engine = queue
			linetest.Serve(r.T, queue, asynq.Config{TaskCheckInterval: time.Second},
				func(ctx context.Context, _ string) error {
					m.SetError("LOADING out of order")
					return r.parks(ctx, parked)
				})
			_, err = r.Tasks.Enqueue(asynq.NewTask("test", nil), asynq.TaskID("a"), asynq.MaxRetry(0))
			r.OK(err)
			time.Sleep(2 * time.Second)
			time.AfterFunc(outage, func() { m.SetError("") })
			began := time.Now()
			r.OK(queue.Close())
			if took := time.Since(began); took > 9*time.Second || (outage == 5*time.Second) != (len(parked) == 1) ||
				(len(parked) == 0) != strings.Contains(log.String(), "default/a") {
				r.Errorf("after %v of %v it is %d times parked; the log says %s", took, outage, len(parked), &log)
			}
			time.Sleep(time.Minute)
		})
	}
}

// asynq ends a run at its timeout, while its handler is still at work.
func TestAnEndedRunIsNotParked(t *testing.T) {
	t.Parallel()
	virtually(t, func(r *solo, _ *miniredis.Miniredis) {
		ended := make(chan error, 1)
		linetest.Serve(r.T, r.Engine, asynq.Config{TaskCheckInterval: time.Second},
			func(ctx context.Context, _ string) error {
				task, err := line.TaskOf(ctx)
				r.OK(err)
				run, err := r.Engine.Run(task)
				r.OK(err)
				time.Sleep(20 * time.Second)
				run.Park("k", line.ParkOptions{RetryAfter: time.Hour}, func(p line.Parked) { r.Errorf("%+v", p) })
				run.End(ctx)
				ended <- ctx.Err()
				return errRefused
			})
		_, err := r.Tasks.Enqueue(asynq.NewTask("test", nil), asynq.TaskID("a"), asynq.Timeout(5*time.Second),
			asynq.MaxRetry(0))
		r.OK(err)
		if err := await(r, ended); err == nil {
			r.Error("its time was not over")
		}
		time.Sleep(5 * time.Minute)
		if lists := r.everywhere("a"); !slices.Equal(lists, []string{"default archived"}) || len(r.Waiting("k")) != 0 ||
			r.Engine.Runs() != 0 {
			r.Errorf("it is in %v, in line are %v, and %d runs are remembered", lists, r.Waiting("k"), r.Engine.Runs())
		}
	})
}

// spoiled is a client that loses the first acknowledgements that park.
type spoiled struct {
	arrives bool
	left    atomic.Int32
}

func (*spoiled) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *spoiled) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !strings.Contains(fmt.Sprint(cmd.Args()...), "railtoken:waiters:{k}") || s.left.Add(-1) < 0 {
			return next(ctx, cmd)
		}
		if s.arrives {
			if err := next(ctx, cmd); err != nil {
				s.left.Add(1) // the server did not know the script
				return err
			}
		}
		cmd.SetErr(errBroken)
		return errBroken
	}
}

func (s *spoiled) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
