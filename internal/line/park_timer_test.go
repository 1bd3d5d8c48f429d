package line_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/line"
)

// parksFor fails the test when a task does not look for itself after that time, in the whole seconds that asynq keeps,
// and never before it.
func (r *rig) parksFor(what string, t line.Task, place line.Parked, want time.Duration) {
	r.Helper()
	if place.Timer != want {
		r.Errorf("%s: it says that it looks for itself in %v, want %v", what, place.Timer, want)
	}
	at := time.Unix(int64(r.Client.ZScore(r.Context(), "asynq:{"+t.Queue+"}:retry", t.ID).Val()), 0)
	if early := time.Until(at) - want; early < -5*time.Second || early > time.Second {
		r.Errorf("%s: it looks for itself in %v, want %v", what, time.Until(at), want)
	}
}

func TestTasksFarBackTryLater(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for i, tt := range []struct {
			look, longest time.Duration
			ahead         int
			want          time.Duration
		}{
			{31 * time.Second, 0, 0, 31 * time.Second},
			{31 * time.Second, 0, 7, 31 * time.Second}, // the first eight
			{32 * time.Second, 0, 8, 64 * time.Second},
			{32 * time.Second, 0, 16, 96 * time.Second},
			{32 * time.Second, 0, 10_000, 10 * time.Minute},
			{32 * time.Second, 0, 30_000, 10 * time.Minute},
			{32 * time.Second, 0, 90_000, 30 * time.Minute},
			{time.Hour, 0, 10_000, time.Hour},
			{10 * time.Minute, 0, 3, 10 * time.Minute},
			{9 * time.Minute, 0, 8, 10 * time.Minute},
			{32 * time.Second, time.Minute, 16, time.Minute},
			{time.Hour, time.Minute, 0, time.Minute},
		} {
			opts := line.ParkOptions{RetryAfter: tt.look, MaxAge: tt.longest, InOrder: true, Ahead: tt.ahead}
			task := r.Delayed(fmt.Sprint(i))
			r.parksFor(fmt.Sprintf("%+v", tt), task, r.parkWith(task, "k", opts), tt.want)
		}
	})
}

func TestATimerDependsOnThePosition(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.crowd("k", 16)
		task := r.Delayed("behind")
		place := r.parkWith(task, "k", line.ParkOptions{RetryAfter: 32 * time.Second})
		if place.Ahead != 16 || place.Waiters != 17 {
			t.Errorf("%+v", place)
		}
		r.parksFor("behind sixteen", task, place, 96*time.Second)
	})
}

func TestTasksThatFindNoRoomTryLaterEachTime(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.crowd("k", 8)
		many := make([]redis.Z, 0, 1000)
		for i := range 90_000 {
			if many = append(many, redis.Z{Score: float64(i), Member: "1:x" + fmt.Sprint(i)}); len(many) == cap(many) {
				r.Client.ZAdd(t.Context(), r.registry("crowded"), many...)
				many = many[:0]
			}
		}
		for i, tt := range []struct {
			key           string
			limits        line.ParkOptions
			before        int
			longest, want time.Duration
		}{
			{"k", line.ParkOptions{MaxWaiters: 8}, 0, 0, time.Minute},
			{"k", line.ParkOptions{MaxWaiters: 8}, 1, 0, 2 * time.Minute},
			{"k", line.ParkOptions{MaxWaiters: 8}, 3, 0, 8 * time.Minute},
			{"k", line.ParkOptions{MaxWaiters: 8}, 1 << 50, 0, 10 * time.Minute},
			{"k", line.ParkOptions{MaxWaiters: 8}, 3, 3 * time.Minute, 3 * time.Minute},
			{"crowded", line.ParkOptions{MaxTotal: 8}, 8, 0, 30 * time.Minute},
			{"alone", line.ParkOptions{MaxTotal: 8}, 0, 0, 30 * time.Second},
		} {
			task := r.Delayed(fmt.Sprint(i))
			r.rewait(task, func(w *line.Wait) { w.Conflict = line.Conflict{Count: tt.before, First: time.Now()} })
			tt.limits.MaxAge, tt.limits.RetryAfter = tt.longest, 30*time.Second
			place := r.parkWith(task, tt.key, tt.limits)
			if r.hasPlace(task) || place.Count != tt.before+1 {
				t.Errorf("%+v: %+v", tt, place)
			}
			r.parksFor(fmt.Sprintf("%+v", tt), task, place, tt.want)
		}
	})
}
