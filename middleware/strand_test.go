package middleware_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
)

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
		processes = append(processes, r.process(p.slots, never, asynq.Config{Queues: map[string]int{"default": 4}}, handler))
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
	for began := time.Now(); len(left()) > 0; <-pause(began) {
		if time.Since(began) < 2*time.Minute {
			continue
		}
		for _, id := range left() {
			for _, queue := range []string{"default"} {
				if info, err := r.inspect.GetTaskInfo(queue, id); err == nil {
					r.Logf("%s in %s: %v %s %s", id, queue, info.State, info.Payload, info.LastErr)
				}
			}
		}
		for _, key := range []string{"a", "b"} {
			w, _ := r.queue.Inspector().Waiters(r.Context(), key, 100)
			r.Logf("%d wait for %s", len(w), key)
		}
		r.Fatalf("%d tasks of %d are left", len(left()), p.tasks)
	}
	u.wantApart(r)
}

// Nothing but a wake brings a parked task back here, so one that is forgotten is found. Excluded is what a timer alone
// can mend: a task that was woken and never comes, as it was deleted then or its server crashed.
func TestNoSequenceOfReleasesStrandsATask(t *testing.T) {
	t.Parallel()
	for seed := range uint64(releaseSeeds) {
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

// deleteParked deletes a task as an operator would, if it is parked and not woken.
var deleteParked = redis.NewScript(`
if redis.call('HGET', KEYS[1], 'state') ~= 'retry' then return 0 end
redis.call('ZREM', KEYS[2], ARGV[1])
return redis.call('DEL', KEYS[1])`)
