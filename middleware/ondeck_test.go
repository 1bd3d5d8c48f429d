package middleware_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// never is a delay after which no task of these tests comes back: whoever runs was woken.
var never = middleware.Requeue{Delay: time.Hour}

// keyList is the key function of tasks that name their keys with commas between.
var keyList = func(_ context.Context, task *asynq.Task) ([]string, error) {
	var p payload
	if err := json.Unmarshal(task.Payload(), &p); err != nil {
		return nil, err
	}
	return strings.Split(p.Key, ","), nil
}

// process is one worker process of several: it has its own gate, budget and stop signal.
type process struct {
	server   *asynq.Server
	gate     *locking.Gate
	sleepers *middleware.Sleepers
	stopping chan struct{}
	signal   func() // closes stopping
	stop     func() // and shuts down
}

// process starts a worker process with so many slots, half of which may wait.
func (r *rig) process(slots int, s middleware.Strategy, cfg asynq.Config, handler asynq.HandlerFunc) *process {
	r.Helper()
	p := &process{gate: locking.NewGate(r.locker, locking.GateOptions{}), sleepers: middleware.NewSleepers(max(slots/2, 1)), stopping: make(chan struct{})}
	opts := r.options(s)
	opts.Locker, opts.Sleepers, opts.Stopping, opts.Key = p.gate, p.sleepers, p.stopping, keyList
	cfg.Concurrency = slots
	p.server = r.serve(opts, cfg, handler)
	p.signal = sync.OnceFunc(func() { close(p.stopping) })
	p.stop = sync.OnceFunc(func() {
		p.signal()
		p.server.Shutdown()
	})
	r.Cleanup(p.stop)
	return p
}

// usage is what the handlers of a test have seen of the keys.
type usage struct {
	mu      sync.Mutex
	holders map[string]int
	spans   map[string][]span
	done    map[string]int // by task
	overlap []string
}

type span struct{ from, to time.Time }

func newUsage() *usage {
	return &usage{holders: map[string]int{}, spans: map[string][]span{}, done: map[string]int{}}
}

// work holds the keys of a task for a time.
func (u *usage) work(ctx context.Context, task *asynq.Task, hold time.Duration) {
	keys, _ := keyList(ctx, task)
	id, _ := asynq.GetTaskID(ctx)
	from := time.Now()
	u.mu.Lock()
	for _, key := range keys {
		u.holders[key]++
		if u.holders[key] > 1 {
			u.overlap = append(u.overlap, key)
		}
	}
	u.mu.Unlock()
	if hold > 0 {
		select {
		case <-time.After(hold):
		case <-ctx.Done():
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, key := range keys {
		u.holders[key]--
		u.spans[key] = append(u.spans[key], span{from, time.Now()})
	}
	u.done[id]++
}

// finished returns how many tasks have run.
func (u *usage) finished() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.done)
}

// idle returns for how long a key was free between its first and its last holder, and how many gaps were longer than a time.
func (u *usage) idle(key string, than time.Duration) (total time.Duration, gaps int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	spans := u.spans[key]
	for i := 1; i < len(spans); i++ {
		gap := spans[i].from.Sub(spans[i-1].to)
		total += gap
		if gap > than {
			gaps++
		}
	}
	return total, gaps
}

// until waits for a condition, in virtual time.
func (r *rig) until(most time.Duration, what string, is func() bool) {
	r.Helper()
	for began := time.Now(); !is(); <-time.After(time.Millisecond) {
		if time.Since(began) > most {
			r.Fatalf("%s: not within %v", what, most)
		}
	}
}

// runs returns how often each task was started, sorted.
func (e *events) runs() []int {
	e.mu.Lock()
	defer e.mu.Unlock()
	of := map[delayqueue.Task]int{}
	for _, ev := range e.all {
		if ev.Kind == middleware.Acquired || ev.Kind == middleware.Ended {
			of[ev.Task]++
		}
	}
	var counts []int
	for _, n := range of {
		counts = append(counts, n)
	}
	slices.Sort(counts)
	return counts
}

func sum(n []int) (s int) {
	for _, v := range n {
		s += v
	}
	return s
}

func TestAKeyIsNotIdleWhileTasksOfOneServerWaitForIt(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		const tasks, hold = 200, 5 * time.Millisecond
		u := newUsage()
		for range tasks {
			r.enqueue(payload{Key: "hot"}, asynq.MaxRetry(3))
		}
		r.process(10, never, asynq.Config{}, func(ctx context.Context, task *asynq.Task) error {
			u.work(ctx, task, hold)
			return nil
		})
		r.until(time.Minute, "all tasks", func() bool { return u.finished() == tasks })
		idle, gaps := u.idle("hot", time.Millisecond)
		runs := r.events.runs()
		r.Logf("idle for %v in all (%d gaps above 1ms), %.2f runs per task, 99%%: %d, most %d",
			idle, gaps, float64(sum(runs))/tasks, runs[len(runs)*99/100-1], runs[len(runs)-1])
		if idle > tasks*time.Millisecond {
			r.Errorf("the key was idle for %v between %d tasks, want at most 1ms each", idle, tasks)
		}
		if runs[len(runs)*99/100-1] > 2 {
			r.Errorf("runs of each task: %v; want at most 2 for 99%%", runs)
		}
		if len(u.overlap) > 0 {
			r.Errorf("two tasks at a time had %v", u.overlap)
		}
	})
}

func TestServersThatShareAKeyStrandNobody(t *testing.T) {
	t.Parallel()
	for _, servers := range []int{2, 3} {
		t.Run(fmt.Sprint(servers), func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				const tasks, hold = 200, 5 * time.Millisecond
				u := newUsage()
				for range tasks {
					r.enqueue(payload{Key: "hot"}, asynq.MaxRetry(3))
				}
				began := time.Now()
				for range servers {
					r.process(6, never, asynq.Config{}, func(ctx context.Context, task *asynq.Task) error {
						u.work(ctx, task, hold)
						return nil
					})
				}
				r.until(time.Minute, "all tasks", func() bool { return u.finished() == tasks })
				idle, gaps := u.idle("hot", time.Millisecond)
				_, long := u.idle("hot", 25*time.Millisecond)
				runs := r.events.runs()
				r.Logf("%v in all, idle for %v (%d gaps above 1ms, %d above 25ms), %.2f runs per task, most %d", time.Since(began), idle, gaps, long,
					float64(sum(runs))/tasks, runs[len(runs)-1])
				if len(u.overlap) > 0 {
					r.Errorf("two tasks at a time had %v", u.overlap)
				}
			})
		})
	}
}

// After sixteen holders in a row a gate lets other processes try, if one has asked to be told. That may be long ago, or by tasks that
// have parked: then nobody comes, and the key must not be idle for long.
func TestTheTurnOfOthersCostsLittleWhenNobodyTakesIt(t *testing.T) {
	t.Parallel()
	for name, asked := range map[string]bool{"others have asked": true, "nobody else has": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				const tasks, hold = 320, 5 * time.Millisecond
				u := newUsage()
				if asked {
					lease := r.hold("hot")
					_, err := r.locker.Acquire(r.Context(), []string{"hot"}, locking.Options{Interest: time.Hour})
					if !errors.Is(err, locking.ErrHeld) {
						r.Fatal(err)
					}
					_ = lease.Release(r.Context())
				}
				for range tasks {
					r.enqueue(payload{Key: "hot"}, asynq.MaxRetry(3))
				}
				r.process(10, never, asynq.Config{}, func(ctx context.Context, task *asynq.Task) error {
					u.work(ctx, task, hold)
					return nil
				})
				r.until(time.Minute, "all tasks", func() bool { return u.finished() == tasks })
				idle, _ := u.idle("hot", 0)
				_, long := u.idle("hot", 10*time.Millisecond)
				r.Logf("idle for %v between %d tasks, %v a turn of others; %d gaps above 10ms", idle, tasks, idle/(tasks/16), long)
				if idle > tasks*2*time.Millisecond {
					r.Errorf("the key was idle for %v", idle)
				}
			})
		})
	}
}

// Tasks that one server has parked are woken for another one, which has never heard of their key.
func TestAServerThatNeverMetTheLineWakesTheNextInIt(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		u := newUsage()
		started := make(chan struct{}, 1)
		release := make(chan struct{})
		first := r.process(4, never, asynq.Config{}, func(ctx context.Context, task *asynq.Task) error {
			started <- struct{}{}
			<-release
			u.work(ctx, task, 0)
			return nil
		})
		r.enqueue(payload{Key: "hot"}, asynq.MaxRetry(3))
		receive(r.T, started)
		<-time.After(time.Second) // the key is held for long: nobody waits on deck
		for range 3 {
			r.enqueue(payload{Key: "hot"}, asynq.MaxRetry(3))
		}
		r.events.await(r, 3, ended(middleware.Parked))
		<-time.After(time.Second)
		first.server.Stop() // it fetches no more
		<-time.After(time.Second)
		r.process(4, never, asynq.Config{}, func(ctx context.Context, task *asynq.Task) error {
			u.work(ctx, task, 0)
			return nil
		})
		close(release)
		r.until(10*time.Second, "the tasks that the first server has parked", func() bool { return u.finished() == 4 })
	})
}

// A waiter on deck that gives up passes on the wake that it has absorbed. It is not the one who gives the key back: its place in line and its
// count of conflicts stay, or its bounds would never be reached.
func TestATaskThatGivesUpOnDeckKeepsItsPlaceInLine(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		b := r.hold("b")
		started := make(chan struct{}, 1)
		r.process(6, never, asynq.Config{}, func(_ context.Context, task *asynq.Task) error {
			var p payload
			_ = json.Unmarshal(task.Payload(), &p)
			started <- struct{}{}
			<-time.After(time.Duration(p.N) * time.Millisecond)
			return nil
		})
		both := r.enqueue(payload{Key: "a,b"}, asynq.MaxRetry(3))
		r.events.await(r, 1, ended(middleware.Parked))
		for n := 2; n <= 4; n++ {
			<-time.After(time.Second)
			r.enqueue(payload{Key: "a", N: 50}, asynq.MaxRetry(3))
			receive(r.T, started)
			// As after a release of b, which is taken again at once.
			if w, err := r.queue.Wake(r.Context(), "b", delayqueue.WakeOptions{}); err != nil || w.First() != both {
				r.Fatalf("woken: %+v, %v", w, err)
			}
			last := r.events.await(r, n, ended(middleware.Parked))[n-1]
			conflict, _ := last.Err.(*middleware.ConflictError) //nolint:errorlint // an event carries the error itself
			if conflict.Task != both || conflict.Conflicts != n || conflict.Waited < time.Duration(n-1)*time.Second {
				r.Errorf("conflict %d is number %d of %v after %v", n, conflict.Conflicts, conflict.Task, conflict.Waited)
			}
		}
		r.giveBack(b)
		receive(r.T, started)
	})
}

// The wake that a waiter on deck absorbed goes on to the next in line when it gives up.
func TestAWaiterThatGivesUpWakesTheNextInLine(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		r.hold("b")
		u := newUsage()
		r.process(6, middleware.Requeue{Delay: time.Hour, OnDeck: 1}, asynq.Config{}, func(ctx context.Context, task *asynq.Task) error {
			var p payload
			_ = json.Unmarshal(task.Payload(), &p)
			u.work(ctx, task, time.Duration(p.N)*time.Millisecond)
			return nil
		})
		r.enqueue(payload{Key: "a", N: 100}, asynq.MaxRetry(3))
		<-time.After(50 * time.Millisecond)
		r.enqueue(payload{Key: "a,b"}, asynq.MaxRetry(3)) // takes the place on deck, and cannot have b
		<-time.After(20 * time.Millisecond)
		for range 3 {
			r.enqueue(payload{Key: "a", N: 5}, asynq.MaxRetry(3))
		}
		r.until(2*time.Second, "the others", func() bool { return u.finished() == 4 })
	})
}

// With more hot keys than the budget allows to wait, who finds no room parks. Nobody is stranded, and the budget is kept.
func TestManyHotKeysKeepToTheBudget(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		const keys, each = 8, 50
		u := newUsage()
		random := rand.New(rand.NewPCG(1, 3)) //nolint:gosec // a test that can be repeated
		for range keys * each {
			r.enqueue(payload{Key: fmt.Sprint("k", random.IntN(keys))}, asynq.MaxRetry(3))
		}
		began := time.Now()
		p := r.process(10, never, asynq.Config{}, func(ctx context.Context, task *asynq.Task) error {
			u.work(ctx, task, 5*time.Millisecond)
			return nil
		})
		most := 0
		r.until(time.Minute, "all tasks", func() bool {
			most = max(most, p.sleepers.InUse())
			return u.finished() == keys*each
		})
		runs := r.events.runs()
		r.Logf("%v in all, %.2f runs per task, most %d; at most %d waited", time.Since(began), float64(sum(runs))/(keys*each), runs[len(runs)-1], most)
		if most > 5 {
			r.Errorf("%d tasks waited in 10 slots, at most 5 may", most)
		}
		if sum(runs) > 3*keys*each {
			r.Errorf("%d runs for %d tasks", sum(runs), keys*each)
		}
		if len(u.overlap) > 0 {
			r.Errorf("two tasks at a time had %v", u.overlap)
		}
		r.until(time.Second, "the budget is given back", func() bool { return p.sleepers.InUse() == 0 })
	})
}

// A task that needs two keys stands in line for both.
func TestATaskWithTwoKeysIsNotStarved(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		u := newUsage()
		r.process(10, never, asynq.Config{}, func(ctx context.Context, task *asynq.Task) error {
			u.work(ctx, task, 5*time.Millisecond)
			return nil
		})
		stop := make(chan struct{})
		var all sync.WaitGroup
		for _, key := range []string{"a", "b"} {
			all.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(4 * time.Millisecond): // faster than they are worked off
						r.enqueue(payload{Key: key}, asynq.MaxRetry(3))
					}
				}
			})
		}
		<-time.After(200 * time.Millisecond)
		both := r.enqueue(payload{Key: "a,b"}, asynq.MaxRetry(3), asynq.Queue("default"))
		began := time.Now()
		r.until(20*time.Second, "the task with two keys", func() bool {
			u.mu.Lock()
			defer u.mu.Unlock()
			return u.done[both.ID] > 0
		})
		r.Logf("the task with two keys ran after %v, %d others have run", time.Since(began), u.finished()-1)
		close(stop)
		all.Wait()
		u.mu.Lock()
		defer u.mu.Unlock()
		if len(u.overlap) > 0 {
			r.Errorf("two tasks at a time had %v", u.overlap)
		}
	})
}

// stubborn is a strategy that always waits on deck.
type stubborn struct {
	places int
	until  time.Duration
	asked  *atomic.Int64
}

func (s stubborn) Decide(c middleware.Conflict) middleware.Decision {
	s.asked.Add(1)
	return middleware.Decision{Action: middleware.WaitInSlot, OnDeck: true, Places: s.places, WaitUntil: c.Now.Add(s.until), Delay: time.Hour}
}

func TestAStrategyThatMayNotWaitOnDeckNeitherSpinsNorBlocks(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]stubborn{"no places": {until: time.Second}, "a time in the past": {places: 1, until: -time.Second}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				lease := r.hold("a")
				s.asked = &atomic.Int64{}
				u := newUsage()
				p := r.process(2, s, asynq.Config{}, func(ctx context.Context, task *asynq.Task) error {
					u.work(ctx, task, 0)
					return nil
				})
				began := time.Now()
				r.enqueue(payload{Key: "a"}, asynq.MaxRetry(3))
				r.events.await(r, 1, ended(middleware.Parked))
				if took := time.Since(began); took > 100*time.Millisecond || s.asked.Load() > 2 || p.sleepers.InUse() != 0 {
					r.Errorf("it parked after %v, the strategy was asked %d times, %d wait", took, s.asked.Load(), p.sleepers.InUse())
				}
				<-time.After(time.Second)
				r.giveBack(lease)
				r.until(time.Minute, "the task", func() bool { return u.finished() == 1 })
			})
		})
	}
}

func TestAShutdownParksWhoWaitsOnDeckAndAnotherServerGoesOn(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		const tasks = 60
		u := newUsage()
		handler := func(ctx context.Context, task *asynq.Task) error {
			u.work(ctx, task, 5*time.Millisecond)
			return nil
		}
		for range tasks {
			r.enqueue(payload{Key: "hot"}, asynq.MaxRetry(3))
		}
		first := r.process(8, never, asynq.Config{}, handler)
		r.until(time.Minute, "a line has formed", func() bool { return u.finished() > 10 && first.sleepers.InUse() > 0 })
		first.signal()
		r.until(20*time.Millisecond, "nobody waits in a slot", func() bool { return first.sleepers.InUse() == 0 })
		first.server.Shutdown()
		before := u.finished()
		r.process(8, never, asynq.Config{}, handler)
		r.until(10*time.Second, fmt.Sprintf("the %d tasks that are left", tasks-before), func() bool { return u.finished() == tasks })
		if len(u.overlap) > 0 {
			r.Errorf("two tasks at a time had %v", u.overlap)
		}
	})
}

func TestAShutdownEndsTheTimeOnDeckAtOnce(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		r.hold("hot")
		p := r.process(4, never, asynq.Config{}, func(context.Context, *asynq.Task) error { return nil })
		r.enqueue(payload{Key: "hot"}, asynq.MaxRetry(3))
		r.until(time.Second, "the task waits", func() bool { return p.sleepers.InUse() == 1 })
		p.signal()
		began := time.Now()
		r.events.await(r, 1, ended(middleware.Parked))
		if took := time.Since(began); took > 20*time.Millisecond {
			r.Errorf("it parked %v after the signal", took)
		}
	})
}

// A lease is lost, a handler releases early, another one panics, and the line goes on.
func TestTheLineGoesOnWhateverAHolderDoes(t *testing.T) {
	t.Parallel()
	for name, misdeed := range map[string]func(r *rig, ctx context.Context){
		"panics": func(*rig, context.Context) { panic("a handler of the test") },
		"releases early": func(_ *rig, ctx context.Context) {
			l, _ := locking.FromContext(ctx)
			_ = l.Release(ctx)
			<-time.After(3 * time.Millisecond)
		},
		"loses its lease":  func(r *rig, ctx context.Context) { r.client.Del(ctx, "railtoken:lock:{hot}"); <-ctx.Done() },
		"is past its time": func(_ *rig, ctx context.Context) { <-ctx.Done() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				const tasks = 30
				u := newUsage()
				first := r.enqueue(payload{Key: "hot"}, asynq.MaxRetry(1), asynq.Timeout(2*time.Second))
				for range tasks {
					r.enqueue(payload{Key: "hot"}, asynq.MaxRetry(3))
				}
				var bad atomic.Bool
				r.process(8, never, asynq.Config{RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Second }},
					func(ctx context.Context, task *asynq.Task) error {
						id, _ := asynq.GetTaskID(ctx)
						if id == first.ID && bad.CompareAndSwap(false, true) {
							misdeed(r, ctx)
							return ctx.Err()
						}
						u.work(ctx, task, 5*time.Millisecond)
						return nil
					})
				r.until(40*time.Second, "the others", func() bool { return u.finished() >= tasks })
				if len(u.overlap) > 0 {
					r.Errorf("two tasks at a time had %v", u.overlap)
				}
			})
		})
	}
}

// Whoever does not wait on deck is woken when there is something for him to do, most of the time.
func TestOtherStrategiesRunATaskAFewTimes(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]middleware.Strategy{
		"nobody on deck": middleware.Requeue{Delay: time.Hour, OnDeck: -1},
		"wait":           middleware.Wait{Max: 30 * time.Millisecond}.Then(never),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				const tasks = 60
				u := newUsage()
				for range tasks {
					r.enqueue(payload{Key: "hot"}, asynq.MaxRetry(3))
				}
				r.process(8, s, asynq.Config{}, func(ctx context.Context, task *asynq.Task) error {
					u.work(ctx, task, 5*time.Millisecond)
					return nil
				})
				r.until(time.Minute, "all tasks", func() bool { return u.finished() == tasks })
				runs := r.events.runs()
				idle, _ := u.idle("hot", 0)
				r.Logf("%.2f runs per task, most %d; the key was idle for %v", float64(sum(runs))/tasks, runs[len(runs)-1], idle)
				if sum(runs) > 3*tasks {
					r.Errorf("%d runs for %d tasks", sum(runs), tasks)
				}
			})
		})
	}
}

func TestTheDeadlineOfATaskEndsItsTimeOnDeckWithAMargin(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		r.hold("hot")
		p := r.process(4, never, asynq.Config{}, func(context.Context, *asynq.Task) error { return nil })
		began := time.Now()
		r.enqueue(payload{Key: "hot"}, asynq.MaxRetry(3), asynq.Timeout(time.Second)) // all of it is margin
		r.events.await(r, 1, ended(middleware.Parked))
		if took := time.Since(began); took > 100*time.Millisecond {
			r.Errorf("a task with a second left waited for %v", took)
		}
		if n := p.sleepers.InUse(); n != 0 {
			r.Errorf("%d wait", n)
		}
	})
}

// deleteParked deletes a task as an operator would, if it is parked and not woken.
var deleteParked = redis.NewScript(`
if redis.call('HGET', KEYS[1], 'state') ~= 'retry' then return 0 end
redis.call('ZREM', KEYS[2], ARGV[1])
return redis.call('DEL', KEYS[1])`)

// plan is a random sequence of what happens to a few keys.
type plan struct {
	servers, slots, tasks int
	deletions, stop       bool
	misdeeds              bool    // handlers fail and panic
	two, long             float64 // the share of tasks with two keys, and of those that take long
}

func (p plan) run(r *rig, random *rand.Rand) {
	u := newUsage()
	handler := func(ctx context.Context, task *asynq.Task) error {
		var pl payload
		_ = json.Unmarshal(task.Payload(), &pl)
		u.work(ctx, task, time.Duration(pl.N)*time.Millisecond)
		if retried, _ := asynq.GetRetryCount(ctx); p.misdeeds && retried == 0 {
			switch pl.N % 5 {
			case 0:
				return errors.New("it failed")
			case 1:
				panic("a handler of the test")
			}
		}
		return nil
	}
	var processes []*process
	for range p.servers {
		processes = append(processes, r.process(p.slots, never, asynq.Config{Queues: map[string]int{"default": 4, "default:delayed": 1}}, handler))
	}
	deleted := map[string]bool{}
	var ids []delayqueue.Task
	for range p.tasks {
		key := string(rune('a' + random.IntN(2)))
		if random.Float64() < p.two {
			key = "a,b"
		}
		hold := random.IntN(15)
		if random.Float64() < p.long {
			hold = 300 + random.IntN(500)
		}
		opts := []asynq.Option{asynq.MaxRetry(random.IntN(3)), asynq.Timeout(time.Hour)}
		ids = append(ids, r.enqueue(payload{Key: key, N: hold}, opts...))
		if random.IntN(3) == 0 {
			<-time.After(time.Duration(random.IntN(60)) * time.Millisecond)
		}
		if p.deletions && random.IntN(3) == 0 {
			victim := ids[random.IntN(len(ids))]
			n, err := deleteParked.Run(r.Context(), r.client, []string{"asynq:{default}:t:" + victim.ID, "asynq:{default}:retry"}, victim.ID).Int()
			if err != nil {
				r.Fatal(err)
			}
			if n == 1 {
				deleted[victim.ID] = true
			}
		}
		if p.stop && len(ids) == p.tasks/2 {
			go processes[0].stop()
		}
	}
	left := func() (left []string) {
		u.mu.Lock()
		defer u.mu.Unlock()
		for _, id := range ids {
			if u.done[id.ID] == 0 && !deleted[id.ID] {
				left = append(left, id.ID)
			}
		}
		return left
	}
	for began := time.Now(); len(left()) > 0; <-time.After(10 * time.Millisecond) {
		if time.Since(began) < 2*time.Minute {
			continue
		}
		for _, id := range left() {
			for _, queue := range []string{"default", "default:delayed"} {
				if info, err := r.inspect.GetTaskInfo(queue, id); err == nil {
					r.Logf("%s in %s: %v %s %s", id, queue, info.State, info.Payload, info.LastErr)
				}
			}
		}
		for _, key := range []string{"a", "b"} {
			w, _ := r.queue.Waiters(r.Context(), key, 100)
			r.Logf("%d in line for %s", len(w), key)
		}
		r.Fatalf("%d tasks of %d are left", len(left()), p.tasks)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.overlap) > 0 {
		r.Errorf("two tasks at a time had %v", u.overlap)
	}
}

// Nothing but a wake brings a parked task back here, so one that is forgotten is found. Excluded is what a timer alone can mend: a task that
// was woken and never comes, as it was deleted then or its server crashed.
func TestNoSequenceOfReleasesStrandsATask(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test that can be repeated
				p := plan{servers: 1 + random.IntN(3), slots: 1 + random.IntN(6), tasks: 10 + random.IntN(40), deletions: random.IntN(2) == 0}
				if p.servers > 1 {
					p.stop = random.IntN(2) == 0
				}
				if random.IntN(2) == 0 {
					p.two = 0.3
				}
				if random.IntN(3) == 0 {
					p.long = 0.05
				}
				p.misdeeds = random.IntN(3) == 0
				r.Logf("%+v", p)
				p.run(r, random)
			})
		})
	}
}
