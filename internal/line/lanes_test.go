package line_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// laneRig is a rig with lanes.
type laneRig struct {
	*rig
	lanes lanes.Lanes
}

// inLanes returns a rig with lanes, on a Cluster of its own, and its queue in the lane of a key. With -short a fake is the Cluster, which
// knows no slots.
func inLanes(t *testing.T, key string) (r laneRig, queue string) {
	t.Helper()
	l, err := lanes.New(64)
	if err != nil {
		t.Fatal(err)
	}
	var client redis.UniversalClient
	if testing.Short() {
		m, _ := redistest.Virtual(t)
		client = redistest.VirtualCluster(t, m)
	} else {
		client = redistest.StartCluster(t, 3).Client(t)
	}
	r = laneRig{newRigWith(t, "cluster", client, line.Options{Lanes: l}), l}
	return r, l.Queue(r.name, l.Of(r.key(key)))
}

// elsewhere returns a key in another lane than a key.
func (r laneRig) elsewhere(key string) string {
	other := key + "'"
	for r.lanes.Of(r.key(other)) == r.lanes.Of(r.key(key)) {
		other += "'"
	}
	return other
}

// waiters returns the set of a key's waiters, and their entries.
func (r laneRig) waiters(key string) (set string, entries []string) {
	r.Helper()
	set = line.NamesIn(r.lanes).Waiters(r.key(key))
	entries, err := r.Client.ZRange(r.Context(), set, 0, -1).Result()
	if err != nil {
		r.Fatal(err)
	}
	return set, entries
}

// A wake of several has taken one out of its set when it comes to what ends it.
func TestWhatEndsAWakeLosesNoTask(t *testing.T) {
	t.Parallel()
	for what, last := range map[string]func(r laneRig, queue string){
		"a task of another lane": func(r laneRig, _ string) { r.Park(r.Delayed("last"), "k") },
		"a key that asynq has not made": func(r laneRig, queue string) {
			task := r.Delayed("last", asynq.Queue(queue))
			r.Park(task, "k")
			r.Remove(task)
			if err := r.Client.Set(r.Context(), hash(task), "other", 0).Err(); err != nil {
				r.Fatal(err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r, queue := inLanes(t, "k")
			first := r.Delayed("first", asynq.Queue(queue))
			r.Park(first, "k")
			for _, id := range []string{"gone", "gone, too"} {
				task := r.Delayed(id, asynq.Queue(queue))
				r.Park(task, "k")
				r.Remove(task)
			}
			last(r, queue)
			w, err := r.Engine.Wake(t.Context(), r.key("k"), line.WakeOptions{Most: 2})
			if err != nil || !slices.Equal(w.Tasks, []line.Task{first}) {
				t.Errorf("woke %v, %v", w.Tasks, err)
			}
			pending := r.Client.LRange(t.Context(), "asynq:{"+queue+"}:pending", 0, -1).Val()
			if !slices.Equal(pending, []string{"first"}) || r.State(first) != asynq.TaskStatePending {
				t.Errorf("pending are %q, and the first is %v", pending, r.State(first))
			}
			waiters, all := r.waiters("k")
			if slices.Contains(all, entry(first)) || w.Left != len(all) || len(all) == 0 {
				t.Errorf("%q wait, and %d are left", all, w.Left)
			}
			owed := r.index() + ":{" + r.lanes.Tag(r.lanes.Of(r.key("k"))) + "}:owed"
			if r.Client.ZScore(t.Context(), owed, waiters).Err() != nil {
				t.Error("nobody looks whether the first task has come")
			}
		})
	}
}

// An idle server looks at a lane that it has not heard of every 2 s.
func TestWhatComesIntoALaneIsAnnounced(t *testing.T) {
	t.Parallel()
	for how, comes := range map[string]func(r laneRig, queue string){
		"woken in steps, because its other key is in another lane": func(r laneRig, queue string) {
			other := r.elsewhere("k")
			r.Park(r.Delayed("t", asynq.Queue(queue)), other)
			if w := r.Wake(other); len(w.Tasks) != 1 {
				r.Errorf("woke %+v", w)
			}
		},
		"free when it is parked": func(r laneRig, queue string) {
			lock := "railtoken:lock:{" + r.lanes.Encode(r.key("k")) + "}"
			opts := line.ParkOptions{Locks: []line.RedisKeys{{Lock: lock, Notify: lock + ":notify"}}}
			if p := r.parkWith(r.Delayed("t", asynq.Queue(queue)), "k", opts); !p.Free {
				r.Errorf("parked as %+v", p)
			}
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			r, queue := inLanes(t, "k")
			master, err := r.Client.(*redis.ClusterClient).MasterForKey(t.Context(), asynqwire.Pending(queue)) //nolint:forcetypeassert // lanes are on one
			if err != nil {
				t.Fatal(err)
			}
			notices := master.Subscribe(t.Context(), lanes.ReadyChannel(r.lanes.Of(r.key("k")))) // as servers do: the bus of a Cluster may lose them
			t.Cleanup(func() { _ = notices.Close() })
			if _, err := notices.Receive(t.Context()); err != nil {
				t.Fatal(err)
			}
			comes(r, queue)
			for heard := notices.Channel(); receive(t, heard).Payload != queue; { //nolint:revive // others have their own
			}
		})
	}
}

// A task in no lane, or with keys in several, releases a key. It leaves the waiters by a call of its own, and the wake is one script.
func TestALeaverOfAnotherLaneCostsNoSteps(t *testing.T) {
	t.Parallel()
	r, queue := inLanes(t, "k")
	leaver, next := r.Delayed("leaver"), r.Delayed("next", asynq.Queue(queue))
	r.Park(leaver, "k")
	r.Begin(leaver)
	r.Park(next, "k")
	r.Client.AddHook(before(func(cmd redis.Cmder) {
		if sum := fmt.Sprint(cmd.Args()[min(1, len(cmd.Args())-1)]); line.ClusterScripts()[sum] == "promote" {
			t.Error("the wake is made in steps")
		}
	}))
	w, err := r.Engine.Wake(t.Context(), r.key("k"), line.WakeOptions{Leaver: leaver})
	if err != nil || !slices.Equal(w.Tasks, []line.Task{next}) || w.Left != 0 {
		t.Errorf("woke %v with %d left, %v", w.Tasks, w.Left, err)
	}
	if _, all := r.waiters("k"); len(all)+len(r.parked()) != 0 || r.wait(leaver).Keys != nil {
		t.Errorf("%q wait, %q are parked, and the leaver waits for %q", all, r.parked(), r.wait(leaver).Keys)
	}
}

// What a script takes for a queue in the lane of a key, and would touch, is no other queue that a server may have.
func TestScriptsKnowTheQueuesOfALane(t *testing.T) {
	t.Parallel()
	r, _ := inLanes(t, "k")
	for _, queue := range []string{
		"mail", "mail@48", "mail@48-abc", "mail@48-Z09", "mail@48-ab", "mail@48-abcd", "mail@48-ab_", "mail@048-abc", "mail@4-abc", "a@48-abc@", "48-abc",
		"a@48-abc@48-abc", "mail@48-äc", r.lanes.Queue("mail", 48),
	} {
		apart, err := r.Client.Eval(t.Context(), line.Composed("return apart(ARGV[1], ARGV[2]) and 1 or 0"), nil, r.lanes.Tag(48), "asynq:{"+queue+"}:").Bool()
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := r.lanes.In(queue); !apart && !ok && r.lanes.Check(queue) == nil {
			t.Errorf("scripts take %q for a queue in lane 48, and a server may have it", queue)
		} else if apart && ok {
			t.Errorf("scripts do not know %q", queue)
		}
	}
}

// A task has waited for a key in another lane, and its run has ended. The script of its acknowledgement does not reach those waiters, and
// forgets the wait all the same: a failed task waits for its retry, and not for the key.
func TestTheEndOfARunForgetsAWaitInAnotherLane(t *testing.T) {
	t.Parallel()
	r, queue := inLanes(t, "k")
	other := r.elsewhere("k")
	task := r.Delayed("t", asynq.Queue(queue))
	r.Park(task, other)
	set, _ := r.waiters(other)
	const source = "local parked = 'railtoken:parked' "
	leave := source + line.Composed("leaveWaiters(KEYS[1], ARGV[1], false) return 1")
	if err := r.Client.Eval(t.Context(), leave, []string{hash(task)}, set).Err(); err != nil {
		t.Fatal(err)
	}
	if got := r.wait(task); got.Keys != nil {
		t.Errorf("it waits for %q", got.Keys)
	}
}

// A script parks a task that has waited for keys of its lane alone. On a real Cluster it reaches no others.
func TestATaskParksInOneScriptWithinItsLane(t *testing.T) {
	t.Parallel()
	for name, former := range map[string]func(r laneRig) string{
		"never waited":               func(laneRig) string { return "" },
		"waited in its lane":         func(laneRig) string { return "k" },
		"has waited in another lane": func(r laneRig) string { return r.elsewhere("k") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, queue := inLanes(t, "k")
			task, other := r.Delayed("t", asynq.Queue(queue)), former(r)
			if other != "" {
				r.Park(task, other)
			}
			r.Begin(task)
			steps := 0
			r.Client.AddHook(before(func(cmd redis.Cmder) {
				if sum := fmt.Sprint(cmd.Args()[min(1, len(cmd.Args())-1)]); line.ClusterScripts()[sum] == "suspend" {
					steps++
				}
			}))
			r.Park(task, "k")
			if inSteps := steps > 0; inSteps != (other != "" && other != "k") {
				t.Errorf("it parks in %d steps", steps)
			}
			if _, all := r.waiters("k"); !slices.Equal(all, []string{entry(task)}) {
				t.Errorf("%q wait", all)
			}
			if other == "k" || other == "" {
				return
			}
			if _, all := r.waiters(other); len(all) != 0 {
				t.Errorf("%q wait for the other key", all)
			}
		})
	}
}

// A producer names the queue without its lane.
func TestATaskJoinsItsSequenceInItsLane(t *testing.T) {
	t.Parallel()
	r, queue := inLanes(t, "k")
	for _, name := range []string{r.name, queue} {
		info, err := r.Engine.EnqueueInOrder(t.Context(), r.key("k"), "test", nil, nil, asynq.Queue(name))
		if err != nil || info.Queue != queue {
			t.Fatalf("%+v, %v", info, err)
		}
		sequence := line.NamesIn(r.lanes).Sequence(r.key("k"))
		if err := r.Client.ZScore(t.Context(), sequence, entry(line.Task{Queue: queue, ID: info.ID})).Err(); err != nil {
			t.Errorf("enqueued into %s it is not in its sequence: %v", name, err)
		}
	}
	if n := r.Client.ZCard(t.Context(), line.NamesIn(r.lanes).Sequence(r.key("k"))).Val(); n != 2 {
		t.Errorf("%d are in the sequence, want two", n)
	}
}
