package line_test

import (
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/line"
)

// scene is a call that crashes. Its tasks are the ones that must come to no harm, each with the key that it waits for
// when it is parked again.
type scene struct {
	tasks map[string]string
	setUp func(r *rig)
	call  func(r *rig, q *line.Engine) error
	// next is a task that must not be in line any more when a is parked again, whatever has arrived in steps; none when
	// empty.
	next string
	// also are further keys that a waits for.
	also []string
	// stranded is how many tasks of those in line may depend on their timers after the crash.
	stranded int
	// ends says that the call ends the run of a, so that asynq repeats it. conflicts is how many a has met then, and
	// unplaced says that no wake finds it.
	ends, unplaced bool
	conflicts      int
}

// parkScene is a scene in which a, which a worker has fetched, is parked.
func parkScene(s scene, opts line.ParkOptions) scene {
	setUp := s.setUp
	s.ends, opts.RetryAfter = true, time.Hour
	s.setUp = func(r *rig) {
		if setUp != nil {
			setUp(r)
		}
		if s.conflicts == 1 {
			r.Delayed("a")
		}
		r.Begin(r.task("a"))
	}
	s.call = func(r *rig, q *line.Engine) error {
		opts := opts
		opts.Also = r.keysOf(s.also)
		_, err := q.Park(r.Context(), r.task("a"), r.key(s.tasks["a"]), opts.Of("a's run"))
		return err
	}
	return s
}

var scenes = map[string]scene{
	"park": parkScene(scene{tasks: map[string]string{"a": "k"}, conflicts: 1, stranded: 1}, line.ParkOptions{}),
	"park when the key is free": parkScene(scene{
		tasks: map[string]string{"a": "k", "b": "k"},
		setUp: func(r *rig) { r.Park(r.Delayed("b"), "k") }, conflicts: 1, stranded: 1,
		// on a Cluster they are elsewhere
	}, line.ParkOptions{Locks: []line.RedisKeys{{Lock: "nobody's", Notify: "nobody's:notify"}}}),
	"park behind another": parkScene(scene{
		tasks: map[string]string{"a": "k", "b": "k"},
		setUp: func(r *rig) {
			r.Park(r.Delayed("b"), "k")
			r.Client.ZAdd(r.Context(), r.registry("k"),
				redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMicro()), Member: entry(r.task("b"))})
		},
		conflicts: 1, stranded: 1,
	}, line.ParkOptions{}),
	"park before others": parkScene(scene{
		tasks: map[string]string{"a": "k", "b": "k"},
		setUp: func(r *rig) { r.Park(r.Delayed("b"), "k") }, conflicts: 1, stranded: 1,
	}, line.ParkOptions{Foremost: "g"}),
	"park again": parkScene(scene{
		tasks:     map[string]string{"a": "k"},
		setUp:     func(r *rig) { r.Park(r.Delayed("a"), "k") },
		conflicts: 2, stranded: 1,
	}, line.ParkOptions{}),
	"park in another line": parkScene(scene{
		tasks: map[string]string{"a": "two", "b": "one"},
		setUp: func(r *rig) {
			r.Park(r.Delayed("a"), "one")
			r.Park(r.Delayed("b"), "one")
		},
		conflicts: 2, stranded: 1,
	}, line.ParkOptions{}),
	"park in another line when woken": parkScene(scene{
		tasks: map[string]string{"a": "two", "b": "one"},
		setUp: func(r *rig) {
			r.Park(r.Delayed("a"), "one")
			r.Park(r.Delayed("b"), "one")
			r.Wake("one")
		},
		next: "b", conflicts: 2, stranded: 2,
	}, line.ParkOptions{}),
	"park at the bound of waiters": parkScene(scene{
		tasks:     map[string]string{"a": "k", "b": "k"},
		setUp:     func(r *rig) { r.Park(r.Delayed("b"), "k") },
		conflicts: 1, stranded: 1, unplaced: true,
	}, line.ParkOptions{MaxWaiters: 1}),
	"park at the total bound": parkScene(scene{
		tasks:     map[string]string{"a": "k", "b": "k"},
		setUp:     func(r *rig) { r.Park(r.Delayed("b"), "k") },
		conflicts: 1, stranded: 1, unplaced: true,
	}, line.ParkOptions{MaxTotal: 1}),
	"park where others are gone": parkScene(scene{
		tasks: map[string]string{"a": "k"},
		setUp: func(r *rig) {
			for _, id := range []string{"gone1", "gone2"} {
				r.Park(r.Delayed(id), "k")
				r.Remove(r.task(id))
			}
		},
		conflicts: 1, stranded: 1,
	}, line.ParkOptions{MaxWaiters: 1, MaxTotal: 1}),
	"park for several keys": parkScene(scene{
		tasks: map[string]string{"a": "k", "b": "m"}, also: []string{"m", "n"},
		setUp: func(r *rig) { r.Park(r.Delayed("b"), "m") }, conflicts: 1, stranded: 2,
	}, line.ParkOptions{}),
	"park for several keys again": parkScene(scene{
		tasks: map[string]string{"a": "k", "b": "m"}, also: []string{"m", "n"},
		setUp: func(r *rig) {
			r.parkFor(r.Delayed("a"), "k", "m", "n")
			r.Park(r.Delayed("b"), "m")
			r.Wake("m")
		},
		conflicts: 2, stranded: 2,
	}, line.ParkOptions{}),
	"park for a key instead of several": parkScene(scene{
		tasks: map[string]string{"a": "k", "b": "m"},
		setUp: func(r *rig) {
			r.parkFor(r.Delayed("a"), "m", "k")
			r.Park(r.Delayed("b"), "m")
			r.Wake("m")
		},
		next: "b", conflicts: 2, stranded: 2,
	}, line.ParkOptions{}),
	"wake for one of several keys": {
		tasks: map[string]string{"a": "m", "b": "m", "c": "k"}, also: []string{"n"},
		setUp: func(r *rig) {
			r.parkFor(r.Delayed("a"), "k", "m", "n")
			r.Park(r.Delayed("b"), "m")
			r.Park(r.Delayed("c"), "k")
		},
		call: func(r *rig, q *line.Engine) error {
			_, err := q.Wake(r.Context(), r.key("m"), line.WakeOptions{})
			return err
		},
		stranded: 1,
	},
	"put off": {
		tasks: map[string]string{"a": "k", "b": "k"},
		setUp: func(r *rig) {
			r.Park(r.Delayed("b"), "k")
			r.begun("a")
		},
		call: func(r *rig, q *line.Engine) error {
			return q.Postpone(r.Context(), r.task("a"), line.ParkOptions{RetryAfter: time.Hour}.Of("a's run"))
		},
		stranded: 1, ends: true, unplaced: true,
	},
	"wake": {
		tasks: map[string]string{"a": "k", "b": "k"},
		setUp: func(r *rig) {
			r.Park(r.Delayed("gone"), "k")
			r.Remove(r.task("gone"))
			r.Park(r.Delayed("a"), "k")
			r.Park(r.Delayed("b"), "k")
		},
		call: func(r *rig, q *line.Engine) error {
			_, err := q.Wake(r.Context(), r.key("k"), line.WakeOptions{})
			return err
		},
		stranded: 1,
	},
	"wake as a leaver": {
		tasks: map[string]string{"a": "k", "b": "k"},
		setUp: func(r *rig) {
			for _, id := range []string{"leaver", "a", "b"} {
				r.Park(r.Delayed(id), "k")
			}
			r.Begin(r.task("leaver"))
		},
		call: func(r *rig, q *line.Engine) error {
			_, err := q.Wake(r.Context(), r.key("k"), line.WakeOptions{Leaver: r.task("leaver")})
			r.finish(r.task("leaver"))
			return err
		},
		stranded: 1,
	},
	"wake several": {
		tasks: map[string]string{"a": "k", "b": "k", "c": "k"},
		setUp: func(r *rig) {
			for _, id := range []string{"a", "b", "c"} {
				r.Park(r.Delayed(id), "k")
			}
		},
		call: func(r *rig, q *line.Engine) error {
			_, err := q.Wake(r.Context(), r.key("k"), line.WakeOptions{Most: 2})
			return err
		},
		stranded: 2,
	},
	"wake a task": {
		tasks: map[string]string{"a": "k", "b": "k"},
		setUp: func(r *rig) {
			r.Park(r.Delayed("a"), "k")
			r.Park(r.Delayed("b"), "k")
		},
		call: func(r *rig, q *line.Engine) error {
			_, err := q.WakeTask(r.Context(), r.key("k"), r.task("b"))
			return err
		},
		stranded: 1,
	},
}
