package line_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// Redis does not answer when a key is released, or when a wake is checked whose task is gone by then. The next waiter comes soon after
// the outage, and not with its timer.
func TestAWakeThatRedisDoesNotAnswerIsMadeAgain(t *testing.T) {
	t.Parallel()
	first := func(r *rig) error {
		_, err := r.Engine.Wake(r.Context(), r.key("k"), line.WakeOptions{})
		return err
	}
	for name, wake := range map[string]func(r *rig) error{
		"a release": first,
		"several releases": func(r *rig) error {
			return r.Engine.WakeAll(r.Context(), []line.KeyWake{{Key: r.key("k")}, {Key: r.key("other")}})[0].Err
		},
		"a release outside of tasks": func(r *rig) error {
			_, err := r.Engine.WakeNext(r.Context(), r.key("k"), line.WakeOptions{})
			return err
		},
		"a wake of one task": func(r *rig) error {
			_, err := r.Engine.WakeTask(r.Context(), r.key("k"), r.task("a"))
			return err
		},
	} {
		for _, answer := range []string{"LOADING", "NOPERM it may not", "nothing"} {
			for _, outage := range []time.Duration{time.Second, 25 * time.Second} {
				onFaulty(t, fmt.Sprintf("%s: %s for %v", name, answer, outage), func(t *testing.T, r *rig, m *miniredis.Miniredis) {
					r.Park(r.Delayed("a"), "k")
					answers := breakOff(r, m, answer)
					if err := wake(r); err == nil {
						t.Error("there is no outage")
					}
					time.Sleep(outage)
					answers()
					r.comesWithin(r.task("a"), outage/4+time.Second)
				})
			}
		}
	}
	onFaulty(t, "a check", func(t *testing.T, r *rig, m *miniredis.Miniredis) {
		r.Park(r.Delayed("a"), "k")
		r.Park(r.Delayed("b"), "k")
		r.must(first(r))
		r.Remove(r.task("a"))
		answers := breakOff(r, m, "LOADING")
		time.Sleep(5 * time.Second)
		answers()
		r.comesWithin(r.task("b"), 5*time.Second)
	})
}

// A wake that Redis refuses for good is left to the timers.
func TestAWakeThatRedisRefusesIsNotMadeAgain(t *testing.T) {
	t.Parallel()
	onFaulty(t, "refused", func(t *testing.T, r *rig, m *miniredis.Miniredis) {
		r.Park(r.Delayed("a"), "k")
		m.SetError("ERR no such thing")
		if _, err := r.Engine.Wake(t.Context(), r.key("k"), line.WakeOptions{}); err == nil {
			t.Error("it is not refused")
		}
		m.SetError("")
		time.Sleep(10 * time.Second)
		if state := r.State(r.task("a")); state != asynq.TaskStateRetry {
			t.Errorf("the waiter is %v", state)
		}
	})
}

// A caller repeats a wake that Redis does not answer, and the Engine makes it again, too. Together they wake one task.
func TestAWakeThatItsCallerRepeatsWakesOneTask(t *testing.T) {
	t.Parallel()
	for name, wake := range map[string]func(ctx context.Context, r *rig) (line.Woken, error){
		"a release": func(ctx context.Context, r *rig) (line.Woken, error) {
			w := r.Engine.WakeAll(ctx, []line.KeyWake{{Key: r.key("k")}})[0]
			return w.Woken, w.Err
		},
		"a release outside of tasks": func(ctx context.Context, r *rig) (line.Woken, error) {
			return r.Engine.WakeNext(ctx, r.key("k"), line.WakeOptions{})
		},
	} {
		for _, answer := range []string{"LOADING", "nothing", "nothing yet"} {
			for _, outage := range []time.Duration{100 * time.Millisecond, 950 * time.Millisecond, 2300 * time.Millisecond, 4200 * time.Millisecond} {
				onFaulty(t, fmt.Sprintf("%s: %s for %v", name, answer, outage), func(t *testing.T, r *rig, m *miniredis.Miniredis) {
					r.Park(r.Delayed("a"), "k")
					r.Park(r.Delayed("b"), "k")
					time.AfterFunc(outage, breakOff(r, m, answer))
					_, err := line.Retry(t.Context(), nil, func(ctx context.Context) (line.Woken, error) { return wake(ctx, r) })
					r.must(err)
					time.Sleep(400 * time.Millisecond) // the woken task is not looked for yet
					if left := r.Waiting("k"); len(left) != 1 || left[0] != "b" {
						t.Errorf("in line are %v", left)
					}
				})
			}
		}
	}
}

// The second try of a caller takes longer than the Engine waits before its own. It is answered in the end, and one task comes.
func TestAWakeIsNotMadeAgainWhileItsCallerRepeatsIt(t *testing.T) {
	t.Parallel()
	onFaulty(t, "slow", func(t *testing.T, r *rig, _ *miniredis.Miniredis) {
		r.Park(r.Delayed("a"), "k")
		r.Park(r.Delayed("b"), "k")
		began := time.Now()
		r.Client.AddHook(lossy(func(_ context.Context, cmds []redis.Cmder, next func() error) error {
			if time.Now().Equal(began) {
				for _, cmd := range cmds {
					cmd.SetErr(errBroken)
				}
				return errBroken
			}
			time.Sleep(time.Until(began.Add(2500 * time.Millisecond)))
			return next()
		}))
		wake := func(ctx context.Context) (none struct{}, _ error) {
			return none, r.Engine.WakeAll(ctx, []line.KeyWake{{Key: r.key("k")}})[0].Err
		}
		_, err := line.Retry(t.Context(), nil, wake)
		r.must(err)
		time.Sleep(400 * time.Millisecond) // the woken task is not looked for yet
		if left := r.Waiting("k"); len(left) != 1 || left[0] != "b" {
			t.Errorf("in line are %v", left)
		}
	})
}

// A task that is to be woken is gone, and Redis does not tell which one is first by then.
func TestAWakeInPlaceOfATaskThatIsGoneIsMadeAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, client := redistest.Virtual(t)
		r := newRigOn(t, "standalone", client)
		for _, id := range []string{"a", "b", "c"} {
			_, err := r.Engine.Join(t.Context(), r.Delayed(id), r.key("k"), line.JoinOptions{})
			r.must(err)
			r.Park(r.task(id), "k")
		}
		r.Remove(r.task("a"))
		var ends atomic.Bool
		r.Client.AddHook(lossy(func(_ context.Context, cmds []redis.Cmder, next func() error) error {
			if left, _ := m.ZMembers(r.registry("k")); ends.Load() || len(left) == 3 {
				return next()
			}
			for _, cmd := range cmds {
				cmd.SetErr(errBroken)
			}
			return errBroken
		}))
		if _, err := r.Engine.WakeTask(t.Context(), r.key("k"), r.task("a")); err == nil {
			t.Error("no call fails")
		}
		ends.Store(true)
		r.comesWithin(r.task("b"), 2*time.Second)
	})
}

// A process that has another number of lanes than the others may wake no task, however often it tries.
func TestAWakeInOtherLanesIsNotMadeAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Virtual(t)
		client := redistest.VirtualCluster(t, m)
		r := newRigOn(t, "cluster", client)
		r.must(m.Set(lanes.Record, "7"))
		e, err := line.New(client, line.Options{})
		r.must(err)
		t.Cleanup(func() { _ = e.Close() })
		var calls atomic.Int32
		client.AddHook(lossy(func(_ context.Context, _ []redis.Cmder, next func() error) error {
			calls.Add(1)
			return next()
		}))
		if _, err := e.Wake(t.Context(), r.key("k"), line.WakeOptions{}); !errors.Is(err, lanes.ErrOther) {
			t.Errorf("the error is %v", err)
		}
		tried := calls.Load()
		time.Sleep(time.Minute)
		if n := calls.Load(); n > tried {
			t.Errorf("within a minute there are %d more calls", n-tried)
		}
	})
}

// onFaulty runs a test in virtual time, on a fake Redis that is one node, and one that is a Cluster.
func onFaulty(t *testing.T, name string, test func(t *testing.T, r *rig, m *miniredis.Miniredis)) {
	t.Helper()
	for _, kind := range kinds {
		t.Run(name+" on a "+kind, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m, client := redistest.Virtual(t)
				var on redis.UniversalClient = client
				if kind == "cluster" {
					on = redistest.VirtualCluster(t, m)
				}
				test(t, newRigOn(t, kind, on), m)
			})
		})
	}
}

// breakOff has a fake Redis give an answer to each call, or breaks each connection, until the function is called that it returns.
func breakOff(r *rig, m *miniredis.Miniredis, answer string) (answers func()) {
	r.Helper()
	if answer != "nothing" {
		m.SetError(answer)
		return func() { m.SetError("") }
	}
	o := outage{patience: map[string]time.Duration{"nothing yet": time.Second}[answer]}
	o.Store(true)
	r.Client.AddHook(&o)
	return func() { o.Store(false) }
}

// outage is a hook that breaks all connections while it is true, each after a while.
type outage struct {
	atomic.Bool
	patience time.Duration
}

// lasts waits for the end of the outage. It reports whether that has not come in time.
func (o *outage) lasts() bool {
	for began := time.Now(); o.Load() && time.Since(began) < o.patience; {
		time.Sleep(10 * time.Millisecond)
	}
	return o.Load()
}

func (*outage) DialHook(next redis.DialHook) redis.DialHook { return next }

func (o *outage) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if o.lasts() {
			cmd.SetErr(errBroken)
			return errBroken
		}
		return next(ctx, cmd)
	}
}

func (o *outage) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if o.lasts() {
			for _, cmd := range cmds {
				cmd.SetErr(errBroken)
			}
			return errBroken
		}
		return next(ctx, cmds)
	}
}

// comesWithin fails the test if a waiter is not at the head of its queue in time.
func (r *rig) comesWithin(t line.Task, within time.Duration) {
	r.Helper()
	began := time.Now()
	for r.State(t) != asynq.TaskStatePending {
		if time.Since(began) > within {
			r.Fatalf("%s is %v after %v", t, r.State(t), within)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
