package line_test

import (
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/colocated"
	"github.com/railtoken/railtoken/internal/line"
)

// The first of a sequence runs, or stands elsewhere: an acknowledgement wakes none of those behind it.
func TestAnAcknowledgementWakesTheFirstOfASequenceAlone(t *testing.T) {
	t.Parallel()
	for name, parks := range map[string]bool{"the first waits": true, "the first does not wait": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHolder(t, "k")
			h.place = colocated.Leaves
			for i, id := range []string{"second", "first"} { // it came first, and was refused later
				if id == "second" || parks {
					h.wait(id, "k", "k")
				}
				h.OK(h.Client.ZAdd(t.Context(), line.Names{}.Sequence("k"), redis.Z{Score: float64(3 - i), Member: "7:default" + id}).Err())
			}
			got := h.acknowledge(1, "")
			if !parks {
				if len(got.Woken) != 0 || !got.Parked || !slices.Equal(h.Waiting("k"), []string{"second"}) {
					t.Errorf("the acknowledgement tells %+v, and %q wait", got, h.Waiting("k"))
				}
				return
			}
			if len(got.Woken) != 1 || !slices.Equal(got.Woken[0].Entries, []string{"7:defaultfirst"}) || !slices.Equal(h.Waiting("k"), []string{"second"}) {
				t.Errorf("the acknowledgement tells %+v, and %q wait", got, h.Waiting("k"))
			}
		})
	}
}
