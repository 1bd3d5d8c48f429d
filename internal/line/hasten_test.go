package line_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/line"
)

// Tasks far back in line have long timers. One that becomes the next must not wait for its own, should those who were
// woken die.
func TestTheTimerOfTheNextWaiterIsShortened(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) { becomesTheNext(t, r) })
}

func becomesTheNext(t *testing.T, r *rig) {
	t.Helper()
	var tasks []line.Task
	for i, look := range []time.Duration{30 * time.Second, 30 * time.Second, 30 * time.Second, 0, time.Hour} {
		task := r.begun(string(rune('a' + i)))
		place, err := r.Engine.Park(t.Context(), task, r.key("k"), line.ParkOptions{RetryAfter: look})
		if err != nil || place.Ahead != i {
			t.Fatalf("place %+v, %v, want %d ahead", place, err, i)
		}
		tasks = append(tasks, task)
	}
	timer := func(i int) time.Duration {
		score := r.Client.ZScore(t.Context(), "asynq:{"+r.name+"}:retry", tasks[i].ID).Val()
		return time.Until(time.Unix(int64(score), 0))
	}
	for _, task := range tasks { // as if many more stood before them
		late := redis.Z{Score: float64(time.Now().Add(10 * time.Minute).Unix()), Member: task.ID}
		if err := r.Client.ZAdd(t.Context(), "asynq:{"+r.name+"}:retry", late).Err(); err != nil {
			t.Fatal(err)
		}
	}
	r.Wake("k")
	// on a Cluster in a moment
	r.Until("the next looks for itself sooner", func() bool { return timer(1) < 9*time.Minute })
	if in := timer(1); in < 29*time.Second || in > 33*time.Second {
		t.Errorf("the next looks for itself in %v, want 30s and a little", in)
	}
	for i := 2; i < len(tasks); i++ {
		if in := timer(i); in < 9*time.Minute {
			t.Errorf("number %d looks for itself in %v, want as before", i, in)
		}
	}
	r.Wake("k")
	r.Wake("k")
	if in := timer(3); in < 9*time.Minute {
		t.Errorf("one without a wish looks for itself in %v, want as before", in)
	}
	r.Wake("k")
	if in := timer(4); in < 9*time.Minute || in > 11*time.Minute {
		t.Errorf("one that wanted to wait longer looks for itself in %v, want as before", in)
	}
}

// The first tasks of a sequence look for themselves soon, should the wake of the one before them be lost.
func TestTheTimersOfTheFirstOfASequenceAreShortened(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		var tasks []line.Task
		for i := range 5 {
			task := r.begun(string(rune('a' + i)))
			r.joins(task, "k", int64(i+1))
			tasks = append(tasks, task)
		}
		for i, task := range tasks[1:] {
			r.parkWith(task, "k", line.ParkOptions{RetryAfter: 30 * time.Second, InOrder: true, Ahead: i + 1})
			r.Client.ZAdd(t.Context(), task.Prefix()+"retry", redis.Z{Score: float64(time.Now().Add(10 * time.Minute).Unix()), Member: task.ID})
		}
		if _, err := r.Engine.Remove(t.Context(), tasks[0], r.key("k")); err != nil {
			t.Fatal(err)
		}
		timer := func(i int) time.Duration {
			return time.Until(time.Unix(int64(r.Client.ZScore(t.Context(), tasks[i].Prefix()+"retry", tasks[i].ID).Val()), 0))
		}
		r.Until("the next looks for itself sooner", func() bool { return timer(1) < 9*time.Minute })
		if last := timer(4); last < 9*time.Minute {
			t.Errorf("the last looks for itself in %v, want as before", last)
		}
	})
}
