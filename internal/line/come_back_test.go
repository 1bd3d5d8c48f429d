package line_test

import (
	"slices"
	"testing"

	"github.com/railtoken/railtoken/internal/line"
)

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
