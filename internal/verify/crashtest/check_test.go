package crashtest_test

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// producerSlack is how much later all may be done when a producer was stopped: a task may run twice.
const producerSlack = 4 * time.Second

// check compares how everything is in the end with how it must be.
func (r *run) check() {
	for _, fault := range r.ledger.wrong() {
		r.Error(fault)
	}
	if left := r.underWay(); len(left) > 0 {
		r.Errorf("in the end these are under way: %v", left)
	}
	archived := slices.DeleteFunc(r.archived(), func(name string) bool {
		j := r.jobOf(name)
		return j.Retries == 0 && r.ledger.has(j.ID) && slices.Contains(r.mayGiveUp, j.ID)
	})
	r.givenUp = slices.DeleteFunc(r.givenUp, func(name string) bool {
		return slices.Contains(r.waited, name) && r.ledger.has(r.jobOf(name).ID) && !slices.Contains(archived, name)
	})
	slices.Sort(archived)
	slices.Sort(r.givenUp)
	if !slices.Equal(archived, r.givenUp) {
		r.Errorf("in the archive are %q, want those that were active on their last attempt: %q", archived, r.givenUp)
	}
	for _, j := range r.jobs {
		if j.ID != r.lost && !r.ledger.has(j.ID) && !slices.ContainsFunc(r.givenUp, func(name string) bool { return r.jobOf(name).ID == j.ID }) {
			r.Errorf("the effect of %s is not there", j.ID)
		}
	}
	for id, n := range r.ledger.repeated() {
		if n != 1 || !slices.Contains(r.again, id) {
			r.Errorf("%s ran %d times more although its effect was there; that is right once, for one of %q", id, n, r.again)
		}
	}
	r.checkRegistries()
	r.checkLines()
	r.checkKeys()
}

// checkLines checks that nobody stands in line, except one that its producer had no time to take out, and that nobody has met since.
func (r *run) checkLines() {
	for _, j := range r.jobs {
		for _, key := range j.keys() {
			for _, member := range inLine(r.m, key) {
				if !r.tidiesUp() {
					r.Errorf("%s still stands in the line of %s", member, key)
				}
			}
		}
	}
}

// checkTime checks how long all took. It took longer than is right when somebody had to wait for a timer who could have been woken: also without
// a fault, and when the fault was in the way of the producer alone.
func (r *run) checkTime(took time.Duration) {
	limit := r.within
	switch {
	case r.at == spot{}:
	case r.tidiesUp(): // somebody may wait for a timer
		return
	case strings.HasPrefix(r.at.name, ofProducer) && !r.fault.lives():
		limit += producerRestart + producerSlack
	default:
		return
	}
	if took > limit {
		r.Errorf("all this takes %v, want at most %v", took, limit)
	}
	if r.at == (spot{}) && r.follows {
		r.checkFollows()
	}
}

// checkFollows checks that the scenario is one in which tasks are handed their keys within the process.
func (r *run) checkFollows() {
	if waits, handed := r.ledger.counts(); waits == 0 || r.gate != (handed > 0) {
		r.Errorf("%d tasks have waited, and to %d the lease was handed off", waits, handed)
	}
}

// checkRegistries checks that nobody waits for a key, and nobody counts among the parked tasks, except one whose process stopped between the index and the
// line of a Cluster: in order it counts until it is found to be gone.
func (r *run) checkRegistries() {
	queue, err := delayqueue.New(r.client, delayqueue.Options{})
	if err != nil {
		r.Fatal(err)
	}
	defer func() { _ = queue.Close() }()
	if members, _ := r.m.ZMembers("railtoken:parked"); len(members) > 0 && (!r.Cluster || r.order == middleware.BestEffort || r.at == spot{}) { // none when there is no index
		r.Errorf("among the parked tasks are %q", members)
	}
	for _, j := range r.jobs {
		for _, key := range j.keys() {
			waiters, err := queue.Inspector().Waiters(r.Context(), key, 100)
			if err != nil {
				r.Error(err)
			}
			for _, w := range waiters {
				state := r.m.HGet("asynq:{"+w.Task.Queue+"}:t:"+w.Task.ID, "state")
				r.Errorf("%s (%s) still waits for %s", w.Task, state, key)
			}
		}
	}
}

// checkKeys checks that every key is free.
func (r *run) checkKeys() {
	locker, err := locking.NewSingle(r.client, locking.SingleOptions{})
	if err != nil {
		r.Fatal(err)
	}
	defer func() { _ = locker.Close() }()
	for _, j := range r.jobs {
		lease, err := locker.Acquire(r.Context(), j.keys(), locking.Options{})
		if err != nil {
			r.Errorf("the keys of %s are not free: %v", j.ID, err)
			continue
		}
		_ = lease.Release(context.Background())
	}
}
