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
	// next is a task that must not be in line any more when a is parked again, whatever has arrived; none when empty.
	next string
	// stranded is how many tasks of those in line may depend on their timers after the crash.
	stranded int
}

func parkWith(id, key string, bounds delayqueue.Bounds) func(r *rig, q *delayqueue.Queue) error {
	return func(r *rig, q *delayqueue.Queue) error {
		r.dequeue(r.task(id))
		_, err := q.Park(r.Context(), r.task(id), r.key(key), delayqueue.ParkOptions{Bounds: bounds})
		r.shelve(r.task(id))
		return err
	}
}

var scenes = map[string]scene{
	"park": {
		tasks: map[string]string{"a": "k"},
		setUp: func(r *rig) { r.delayed("a") },
		call:  parkWith("a", "k", delayqueue.Bounds{}), stranded: 1,
	},
	"park behind another": {
		tasks: map[string]string{"a": "k", "b": "k"},
		setUp: func(r *rig) {
			r.park(r.delayed("b"), "k")
			r.client.ZAdd(r.Context(), r.registry("k"), redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMicro()), Member: entry(r.task("b"))})
			r.delayed("a")
		},
		call: parkWith("a", "k", delayqueue.Bounds{}), stranded: 1,
	},
	"park again": {
		tasks: map[string]string{"a": "k"},
		setUp: func(r *rig) { r.park(r.delayed("a"), "k") },
		call:  parkWith("a", "k", delayqueue.Bounds{}),
	},
	"park in another line": {
		tasks: map[string]string{"a": "two", "b": "one"},
		setUp: func(r *rig) {
			r.park(r.delayed("a"), "one")
			r.park(r.delayed("b"), "one")
		},
		call: parkWith("a", "two", delayqueue.Bounds{}), stranded: 1,
	},
	"park in another line when woken": {
		tasks: map[string]string{"a": "two", "b": "one"},
		setUp: func(r *rig) {
			r.park(r.delayed("a"), "one")
			r.park(r.delayed("b"), "one")
			r.wake("one")
		},
		next: "b",
		call: parkWith("a", "two", delayqueue.Bounds{}), stranded: 2,
	},
	"park at the bound of conflicts": {
		tasks: map[string]string{"a": "k"},
		setUp: func(r *rig) { r.park(r.delayed("a"), "k") },
		call:  parkWith("a", "k", delayqueue.Bounds{Conflicts: 1}), stranded: 1,
	},
	"park at the bound of waiters": {
		tasks: map[string]string{"a": "k", "b": "k"},
		setUp: func(r *rig) { r.park(r.delayed("b"), "k"); r.delayed("a") },
		call:  parkWith("a", "k", delayqueue.Bounds{Waiters: 1}), stranded: 1,
	},
	"park at the total bound": {
		tasks: map[string]string{"a": "k", "b": "k"},
		setUp: func(r *rig) { r.park(r.delayed("b"), "k"); r.delayed("a") },
		call:  parkWith("a", "k", delayqueue.Bounds{Total: 1}), stranded: 1,
	},
	"park where others are gone": {
		tasks: map[string]string{"a": "k"},
		setUp: func(r *rig) {
			for _, id := range []string{"gone1", "gone2"} {
				r.park(r.delayed(id), "k")
				r.remove(r.task(id))
			}
			r.delayed("a")
		},
		call: parkWith("a", "k", delayqueue.Bounds{Waiters: 1, Total: 1}), stranded: 1,
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
			r.set(r.task("leaver"), "state", "active")
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
