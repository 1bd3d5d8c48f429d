package line_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// deadRun is the name of a run of a process.
const deadRun = "0123456789abcdefDEADDEAD.1"

// begun is a rig whose tasks were fetched by other processes.
type begun struct {
	*rig

	queue string
}

// begins puts a task into a run that asynq's lease keeps for some more seconds; 0 for no lease.
func (b *begun) begins(id, run string, lease int) line.Task {
	b.Helper()
	prefix := "asynq:{" + b.queue + "}:"
	if b.Client.Exists(b.Context(), prefix+"t:"+id).Val() == 0 {
		if _, err := b.Tasks.Enqueue(asynq.NewTask("test", nil), asynq.Queue(b.queue), asynq.TaskID(id), asynq.MaxRetry(0)); err != nil {
			b.Fatal(err)
		}
	}
	b.Client.LRem(b.Context(), prefix+"pending", 0, id)
	b.Client.LPush(b.Context(), prefix+"active", id)
	fields := []any{"state", "active", "pending_since", run}
	b.Client.HSet(b.Context(), prefix+"t:"+id, fields...)
	if run == "" {
		b.Client.HDel(b.Context(), prefix+"t:"+id, "pending_since")
	}
	if lease != 0 {
		b.Client.ZAdd(b.Context(), prefix+"lease", redis.Z{Score: float64(time.Now().Unix() + int64(lease)), Member: id})
	}
	return line.Task{Queue: b.queue, ID: id}
}

// back takes a remnant back.
func (b *begun) back(m line.Remnant) line.Left {
	b.Helper()
	left, err := b.Engine.TakeBack(b.Context(), m, 3, func([]string) (bool, error) { return true, nil })
	if err != nil {
		b.Error(err)
	}
	return left
}

func onOne(t *testing.T, test func(b *begun)) {
	t.Helper()
	r := newRig(t, "standalone")
	test(&begun{r, r.name})
}

func TestASweepFindsTheRunsOfDeadWorkers(t *testing.T) {
	t.Parallel()
	onOne(t, func(b *begun) {
		b.begins("dead", deadRun, 10)
		b.begins("alive", "0123456789abcdefALIVEOOO.1", 10)
		b.begins("plain", "", 10)
		b.begins("earlier version", "ABCDEFGHIJKLMNOPQRSTUVWXYZ.1", 10)
		b.begins("no lease", "", 0)
		b.begins("dead without a lease", deadRun, 0)
		ctx, unleased := b.Context(), line.Remnant{Task: line.Task{Queue: b.queue, ID: "no lease"}}
		for i, want := range []bool{false, true} {
			all, _, err := b.Engine.Sweep(ctx, b.queue, "me", time.Minute, 0, []string{"OTHERDEA", "DEADDEAD"})
			if found := slices.Contains(all, unleased); found != want || err != nil {
				b.Errorf("sweep %d has found the task without a lease: %v, %v", i, found, err)
			}
		}
		if all, _, err := b.Engine.Sweep(ctx, b.queue, "me", time.Minute, time.Minute, nil); slices.Contains(all, unleased) || err != nil {
			b.Errorf("a task is lost too soon: %v, %v", all, err)
		}
		all, ok, err := b.Engine.Sweep(ctx, b.queue, "me", time.Minute, 0, []string{"OTHERDEA", "DEADDEAD"})
		got := map[string]bool{}
		for _, m := range all {
			got[m.ID] = m.Silent
		}
		if want := map[string]bool{"dead": true, "no lease": false, "dead without a lease": true}; err != nil || !ok || len(got) != len(want) ||
			got["dead"] != true || got["dead without a lease"] != true || slices.Contains(ids(all), "plain") || slices.Contains(ids(all), "alive") {
			b.Errorf("found %v, %v, %v", got, ok, err)
		}
		if all, ok, err := b.Engine.Sweep(ctx, b.queue, "another", time.Minute, 0, []string{"DEADDEAD"}); err != nil || ok || len(all) != 0 {
			b.Errorf("another worker sweeps, too: %v, %v", all, err)
		}
	})
}

func ids(all []line.Remnant) (ids []string) {
	for _, m := range all {
		ids = append(ids, m.ID)
	}
	return ids
}

func TestATaskIsTakenBackFromItsVeryRun(t *testing.T) {
	t.Parallel()
	onOne(t, func(b *begun) {
		waiting := b.begins("waiting", deadRun, 10)
		b.Client.HSet(b.Context(), waiting.Hash(), "railtoken:woken", deadRun)
		if left := b.back(line.Remnant{Task: waiting, Run: deadRun, Silent: true}); left != line.Back {
			b.Errorf("it is %v", left)
		}
		info, err := b.Inspect.GetTaskInfo(b.queue, "waiting")
		if err != nil || info.State != asynq.TaskStatePending || info.Retried != 0 || info.LastErr != "" {
			b.Errorf("%+v, %v", info, err)
		}
		if woken := b.Client.HGet(b.Context(), waiting.Hash(), "railtoken:woken").Val(); woken != "1" {
			b.Errorf("it counts as woken %q", woken)
		}
		// A reply was lost, or the worker looks again.
		if left := b.back(line.Remnant{Task: waiting, Run: deadRun, Silent: true}); left != line.Over {
			b.Errorf("for the second time it is %v", left)
		}
		for name, tt := range map[string]struct {
			run    string
			lease  int
			silent bool
			asked  string
			want   line.Left
		}{
			"another run":        {"0123456789abcdefDEADDEAD.2", 10, true, deadRun, line.Over},
			"a plain run":        {"", 10, true, deadRun, line.Over},
			"at the recoverer":   {deadRun, -28, true, deadRun, line.Over},
			"before it":          {deadRun, -26, true, deadRun, line.Back},
			"no lease":           {"", 0, false, "", line.Back},
			"a lease after all":  {"", 10, false, "", line.Over},
			"dead and no lease":  {deadRun, 0, true, deadRun, line.Back},
			"alive and no lease": {"0123456789abcdefALIVEOOO.1", 0, false, "0123456789abcdefALIVEOOO.1", line.Back},
		} {
			task := b.begins(name, tt.run, tt.lease)
			if left := b.back(line.Remnant{Task: task, Run: tt.asked, Silent: tt.silent}); left != tt.want {
				b.Errorf("%s: it is %v, want %v", name, left, tt.want)
			}
			_, err := b.Client.ZScore(b.Context(), "asynq:{"+b.queue+"}:lease", name).Result()
			if leased := err == nil; leased != (tt.want == line.Over && tt.lease != 0) {
				b.Errorf("%s: a lease is left: %v", name, leased)
			}
		}
	})
}

// Its worker proves to be alive, or asynq's recoverer comes, while its keys are released.
func TestATaskInItsNextRunIsNotTakenBack(t *testing.T) {
	t.Parallel()
	onOne(t, func(b *begun) {
		task := b.begins("runs again", deadRun, 10)
		b.Client.HSet(b.Context(), task.Hash(), "railtoken:keys", "order:1 a%20b")
		var freed []string
		left, err := b.Engine.TakeBack(b.Context(), line.Remnant{Task: task, Run: deadRun, Silent: true}, 3, func(keys []string) (bool, error) {
			freed = keys
			return true, b.Client.HSet(b.Context(), task.Hash(), "pending_since", "0123456789abcdefALIVEOOO.7").Err()
		})
		if err != nil || left != line.Over || b.Client.HGet(b.Context(), task.Hash(), "state").Val() != "active" {
			b.Errorf("it is %v, %v", left, err)
		}
		if !slices.Equal(freed, []string{"order:1", "a b"}) {
			b.Errorf("its keys are %q", freed)
		}
		b.begins("heard of", deadRun, 10)
		for _, failure := range []error{nil, errLost} {
			left, err := b.Engine.TakeBack(b.Context(), line.Remnant{Task: line.Task{Queue: b.queue, ID: "heard of"}, Run: deadRun, Silent: true}, 3,
				func([]string) (bool, error) { return false, failure })
			if !errors.Is(err, failure) || left != line.Over || b.Client.HGet(b.Context(), "asynq:{"+b.queue+"}:t:heard of", "state").Val() != "active" {
				b.Errorf("a task whose process has come back is %v, %v", left, err)
			}
		}
	})
}

// An operator has cancelled the run before its worker died: there is none again.
func TestACancelledTaskOfADeadWorkerEnds(t *testing.T) {
	t.Parallel()
	onOne(t, func(b *begun) {
		for _, discard := range []bool{false, true} {
			id := map[bool]string{false: "archive", true: "discard"}[discard]
			task := b.begins(id, deadRun, 10)
			if what, err := b.Engine.Cancel(b.Context(), task, line.Cancellation{By: "ann", Discard: discard}); err != nil || what != line.Told {
				b.Fatal(what, err)
			}
			b.Client.HSet(b.Context(), task.Hash(), "railtoken:deaths", "7 x")
			if left := b.back(line.Remnant{Task: task, Run: deadRun, Silent: true}); left != line.Cancelled {
				b.Errorf("%s: it is %v", id, left)
			}
			info, err := b.Inspect.GetTaskInfo(b.queue, id)
			if discard && !errors.Is(err, asynq.ErrTaskNotFound) || !discard && (err != nil || info.State != asynq.TaskStateArchived) {
				b.Errorf("%s: %+v, %v", id, info, err)
			}
			for _, list := range []string{"active", "pending"} {
				if n := b.Client.LLen(b.Context(), "asynq:{"+b.queue+"}:"+list).Val(); n != 0 {
					b.Errorf("%s: %d tasks are %s", id, n, list)
				}
			}
		}
	})
}

// The last of so many deaths is left to asynq's recoverer, which needs a lease to find the task.
func TestATaskThatKillsItsWorkersIsCountedInTheEnd(t *testing.T) {
	t.Parallel()
	onOne(t, func(b *begun) {
		dies := func(id string, lease int) line.Left {
			return b.back(line.Remnant{Task: b.begins(id, deadRun, lease), Run: deadRun, Silent: true})
		}
		for _, lease := range []int{10, 0} {
			id := map[int]string{10: "leased", 0: "unleased"}[lease]
			for i, want := range []line.Left{line.Back, line.Back, line.Counted} {
				b.Client.Del(b.Context(), "asynq:{"+b.queue+"}:active")
				if got := dies(id, lease); got != want {
					b.Errorf("%s: death %d: %v, want %v", id, i+1, got, want)
				}
			}
			if all, _, err := b.Engine.Sweep(b.Context(), b.queue, "me", time.Minute, 0, []string{"DEADDEAD"}); err != nil || slices.Contains(ids(all), id) {
				b.Errorf("%s: a sweep still finds it: %v, %v", id, all, err)
			}
			ends, err := b.Client.ZScore(b.Context(), "asynq:{"+b.queue+"}:lease", id).Result()
			if err != nil || lease == 0 && ends != 0 {
				b.Errorf("%s: its lease ends at %v, %v", id, ends, err)
			}
			if run := b.Client.HGet(b.Context(), line.Task{Queue: b.queue, ID: id}.Hash(), "pending_since").Val(); run == "" || run == deadRun {
				b.Errorf("%s: it is in the run %q, of which others know", id, run)
			}
		}
		// A run that ends by itself begins the count anew: it fails, or is parked.
		for name, ends := range map[string]func(t line.Task){
			"fails": func(t line.Task) {
				b.Client.HSet(b.Context(), t.Hash(), "msg", b.Client.HGet(b.Context(), t.Hash(), "msg").Val()+"\x38\x01")
			},
			"parks": func(t line.Task) { b.Client.HSet(b.Context(), t.Hash(), "railtoken:nonce", "another run") },
		} {
			for range 2 {
				dies(name, 10)
			}
			ends(line.Task{Queue: b.queue, ID: name})
			if got := dies(name, 10); got != line.Back {
				b.Errorf("a task that %s in between is %v", name, got)
			}
		}
	})
}

// Each call of a recovery is lost before and after Redis has carried it out; the next sweep repeats all.
func TestARecoveryIsRepeatedAfterAnyLostCall(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for n := 1; n <= 3; n++ {
		for _, carriedOut := range []bool{false, true} {
			client := server.Client(t, func(o *redis.Options) { o.MaxRetries = -1 })
			r := newRigOn(t, "standalone", client)
			b := &begun{r, r.name}
			id := map[bool]string{false: "before", true: "after"}[carriedOut] + string(rune('0'+n))
			task, calls := b.begins(id, deadRun, 10), 0
			client.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
				if cmd.Name() != "evalsha" && cmd.Name() != "hmget" {
					return next(ctx, cmd)
				}
				calls++
				if calls != n {
					return next(ctx, cmd)
				}
				if carriedOut {
					_ = next(ctx, cmd)
				}
				return redistest.Fail(cmd, errLost)
			}))
			tookBack := 0
			for range 3 {
				all, _, err := b.Engine.Sweep(t.Context(), b.queue, "me", time.Minute, 0, []string{"DEADDEAD"})
				if err != nil {
					continue
				}
				for _, m := range all {
					if left, err := b.Engine.TakeBack(t.Context(), m, 3, func([]string) (bool, error) { return true, nil }); err == nil && left == line.Back {
						tookBack++
					}
				}
			}
			info, err := b.Inspect.GetTaskInfo(b.queue, task.ID)
			pending := b.Client.LRange(t.Context(), "asynq:{"+b.queue+"}:pending", 0, -1).Val()
			if err != nil || info.State != asynq.TaskStatePending || info.Retried != 0 || !slices.Contains(pending, id) ||
				len(slices.DeleteFunc(pending, func(p string) bool { return p != id })) != 1 || tookBack > 1 {
				t.Errorf("call %d lost, carried out %v: %+v, %v; pending %v, taken back %d times", n, carriedOut, info, err, pending, tookBack)
			}
			if deaths := b.Client.HGet(t.Context(), task.Hash(), "railtoken:deaths").Val(); deaths[:2] != "1 " {
				t.Errorf("call %d lost, carried out %v: %q deaths", n, carriedOut, deaths)
			}
		}
	}
}

var errLost = errors.New("the reply is lost")
