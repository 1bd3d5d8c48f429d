package delayqueue_test

import (
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
)

// scene is a call that crashes. Its tasks are the ones that must come to no harm, each with the key that it waits for when it is parked again.
type scene struct {
	tasks map[string]string
	setUp func(r *rig)
	call  func(r *rig, q *delayqueue.Queue) error
	// next is a task that must not be in line any more when a is parked again, whatever has arrived in steps; none when empty.
	next string
	// stranded is how many tasks of those in line may depend on their timers after the crash.
	stranded int
	// ends says that the call ends the run of a, so that asynq repeats it. conflicts is how many a has met then, and unplaced says that no wake finds it.
	ends, unplaced bool
	conflicts      int
}

// parkScene is a scene in which a, which a worker has fetched, is parked.
func parkScene(s scene, opts delayqueue.ParkOptions) scene {
	setUp := s.setUp
	s.ends, opts.Look = true, time.Hour
	s.setUp = func(r *rig) {
		if setUp != nil {
			setUp(r)
		}
		if s.conflicts == 1 {
			r.delayed("a")
		}
		r.begin(r.task("a"))
	}
	s.call = func(r *rig, q *delayqueue.Queue) error {
		_, err := q.Park(r.Context(), r.task("a"), r.key(s.tasks["a"]), opts.Of("a's run", nil))
		return err
	}
	return s
}

var scenes = map[string]scene{
	"park": parkScene(scene{tasks: map[string]string{"a": "k"}, conflicts: 1, stranded: 1}, delayqueue.ParkOptions{}),
	"park when the key is free": parkScene(scene{
		tasks: map[string]string{"a": "k", "b": "k"},
		setUp: func(r *rig) { r.park(r.delayed("b"), "k") }, conflicts: 1, stranded: 1,
	}, delayqueue.ParkOptions{Locks: []delayqueue.LockNames{{Lock: "nobody's", Notify: "nobody's:interest"}}}), // on a Cluster they are elsewhere
	"park behind another": parkScene(scene{
		tasks: map[string]string{"a": "k", "b": "k"},
		setUp: func(r *rig) {
			r.park(r.delayed("b"), "k")
			r.client.ZAdd(r.Context(), r.registry("k"), redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMicro()), Member: entry(r.task("b"))})
		},
		conflicts: 1, stranded: 1,
	}, delayqueue.ParkOptions{}),
	"park again": parkScene(scene{
		tasks:     map[string]string{"a": "k"},
		setUp:     func(r *rig) { r.park(r.delayed("a"), "k") },
		conflicts: 2, stranded: 1,
	}, delayqueue.ParkOptions{}),
	"park in another line": parkScene(scene{
		tasks: map[string]string{"a": "two", "b": "one"},
		setUp: func(r *rig) {
			r.park(r.delayed("a"), "one")
			r.park(r.delayed("b"), "one")
		},
		conflicts: 2, stranded: 1,
	}, delayqueue.ParkOptions{}),
	"park in another line when woken": parkScene(scene{
		tasks: map[string]string{"a": "two", "b": "one"},
		setUp: func(r *rig) {
			r.park(r.delayed("a"), "one")
			r.park(r.delayed("b"), "one")
			r.wake("one")
		},
		next: "b", conflicts: 2, stranded: 2,
	}, delayqueue.ParkOptions{}),
	"park at the bound of waiters": parkScene(scene{
		tasks:     map[string]string{"a": "k", "b": "k"},
		setUp:     func(r *rig) { r.park(r.delayed("b"), "k") },
		conflicts: 1, stranded: 1, unplaced: true,
	}, delayqueue.ParkOptions{Limits: delayqueue.Limits{Waiters: 1}}),
	"park at the total bound": parkScene(scene{
		tasks:     map[string]string{"a": "k", "b": "k"},
		setUp:     func(r *rig) { r.park(r.delayed("b"), "k") },
		conflicts: 1, stranded: 1, unplaced: true,
	}, delayqueue.ParkOptions{Limits: delayqueue.Limits{Total: 1}}),
	"park where others are gone": parkScene(scene{
		tasks: map[string]string{"a": "k"},
		setUp: func(r *rig) {
			for _, id := range []string{"gone1", "gone2"} {
				r.park(r.delayed(id), "k")
				r.remove(r.task(id))
			}
		},
		conflicts: 1, stranded: 1,
	}, delayqueue.ParkOptions{Limits: delayqueue.Limits{Waiters: 1, Total: 1}}),
	"put off": {
		tasks: map[string]string{"a": "k", "b": "k"},
		setUp: func(r *rig) {
			r.park(r.delayed("b"), "k")
			r.begun("a")
		},
		call: func(r *rig, q *delayqueue.Queue) error {
			return q.Postpone(r.Context(), r.task("a"), delayqueue.ParkOptions{Look: time.Hour}.Of("a's run", nil))
		},
		stranded: 1, ends: true, unplaced: true,
	},
	"wake": {
		tasks: map[string]string{"a": "k", "b": "k"},
		setUp: func(r *rig) {
			r.park(r.delayed("gone"), "k")
			r.remove(r.task("gone"))
			r.park(r.delayed("a"), "k")
			r.park(r.delayed("b"), "k")
		},
		call: func(r *rig, q *delayqueue.Queue) error {
			_, err := q.Wake(r.Context(), r.key("k"), delayqueue.WakeOptions{})
			return err
		},
		stranded: 1,
	},
	"wake as a leaver": {
		tasks: map[string]string{"a": "k", "b": "k"},
		setUp: func(r *rig) {
			for _, id := range []string{"leaver", "a", "b"} {
				r.park(r.delayed(id), "k")
			}
			r.begin(r.task("leaver"))
		},
		call: func(r *rig, q *delayqueue.Queue) error {
			_, err := q.Wake(r.Context(), r.key("k"), delayqueue.WakeOptions{Leaver: r.task("leaver")})
			r.finish(r.task("leaver"))
			return err
		},
		stranded: 1,
	},
	"wake several": {
		tasks: map[string]string{"a": "k", "b": "k", "c": "k"},
		setUp: func(r *rig) {
			for _, id := range []string{"a", "b", "c"} {
				r.park(r.delayed(id), "k")
			}
		},
		call: func(r *rig, q *delayqueue.Queue) error {
			_, err := q.Wake(r.Context(), r.key("k"), delayqueue.WakeOptions{Most: 2})
			return err
		},
		stranded: 2,
	},
	"wake a task": {
		tasks: map[string]string{"a": "k", "b": "k"},
		setUp: func(r *rig) {
			r.park(r.delayed("a"), "k")
			r.park(r.delayed("b"), "k")
		},
		call: func(r *rig, q *delayqueue.Queue) error {
			_, err := q.WakeTask(r.Context(), r.key("k"), r.task("b"))
			return err
		},
		stranded: 1,
	},
}
