package line_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// Whoever releases the key wakes the task while it looks whether it is the first. The next one waits on.
func TestATaskThatIsWokenWhileItComesBackComesAlone(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		itself, next := r.Delayed("itself"), r.Delayed("next")
		r.Park(itself, "k")
		r.Park(next, "k")
		var looks atomic.Int32
		r.Client.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, send redis.ProcessHook) error {
			err := send(ctx, cmd)
			if cmd.Name() == "zrank" && looks.Add(1) == 1 {
				if w := r.Wake("k"); !slices.Equal(w.Tasks, []line.Task{itself}) {
					t.Errorf("the release wakes %v", w.Tasks)
				}
			}
			return err
		}))
		if w, err := r.Engine.ComeBack(t.Context(), r.key("k"), itself); err != nil || len(w.Tasks) > 0 || looks.Load() != 1 {
			t.Errorf("after %d looks %v is woken, too, %v", looks.Load(), w.Tasks, err)
		}
		if left := r.Waiting("k"); !slices.Equal(left, []string{"next"}) {
			t.Errorf("in line are %v", left)
		}
	})
}

// The task is deleted after it has woken itself. The next one need not wait for its timer.
func TestTheNextComesIfATaskThatCameBackIsDeleted(t *testing.T) {
	t.Parallel()
	onEachVirtual(t, func(t *testing.T, r *rig) {
		itself, next := r.Delayed("itself"), r.Delayed("next")
		r.Park(itself, "k")
		r.Park(next, "k")
		_, err := r.Engine.ComeBack(t.Context(), r.key("k"), itself)
		r.must(err)
		r.Remove(itself)
		r.comesWithin(next, 2*time.Second)
	})
}

// A task that was parked finds its key free. One task comes, whatever has become of it meanwhile.
func TestATaskThatFindsItsKeyFreeComesBackAlone(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for name, c := range map[string]struct {
			meanwhile func(key string, itself line.Task)
			ahead     bool // another task stands before it
			want      string
		}{
			"it waits":           {want: "itself"},
			"it waits behind":    {ahead: true, want: "first"},
			"it was woken":       {meanwhile: func(key string, _ line.Task) { r.Wake(key) }},
			"it was woken, runs": {meanwhile: func(key string, _ line.Task) { r.Begin(r.Wake(key).First()) }},
			"it is gone":         {meanwhile: func(_ string, itself line.Task) { r.Remove(itself) }, want: "behind"},
		} {
			key := name
			if c.ahead {
				r.Park(r.Delayed("first: "+name), key)
			}
			itself := r.Delayed("itself: " + name)
			r.Park(itself, key)
			r.Park(r.Delayed("behind: "+name), key)
			if c.meanwhile != nil {
				c.meanwhile(key, itself)
			}
			w, err := r.Engine.ComeBack(t.Context(), r.key(key), itself)
			var want []line.Task
			if c.want != "" {
				want = []line.Task{r.task(c.want + ": " + name)}
			}
			if err != nil || !slices.Equal(w.Tasks, want) {
				t.Errorf("%s: %v is woken, %v, want %v", name, w.Tasks, err, want)
			}
		}
	})
}
