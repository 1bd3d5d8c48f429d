package items

import (
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/parking"
	"github.com/railtoken/railtoken/locking"
)

func TestATaskWaitsForTheKeyTakenLast(t *testing.T) {
	t.Parallel()
	now := time.Now()
	refused := func(index int, held, remaining time.Duration) refusal {
		h := locking.Holder{Remaining: remaining}
		if held >= 0 {
			h.Since = now.Add(-held)
		}
		return refusal{index: index, held: &locking.HeldError{Holder: h}, at: now}
	}
	for name, tt := range map[string]struct {
		refused []refusal
		want    int
	}{
		"a long audit is renewed":     {[]refusal{refused(0, time.Minute, 21*time.Second), refused(1, time.Millisecond, 30*time.Second)}, 1},
		"a holder has died":           {[]refusal{refused(0, 20*time.Second, time.Second), refused(1, 10*time.Second, 25*time.Second)}, 0},
		"another program holds one":   {[]refusal{refused(0, -1, -1), refused(1, time.Hour, 29*time.Second)}, 1},
		"a clock is ahead":            {[]refusal{refused(0, time.Second, time.Minute), refused(1, -time.Second+1, time.Minute)}, 0},
		"other programs hold all":     {[]refusal{refused(0, -1, -1), refused(1, -1, 3*time.Second)}, 1},
		"the first one when in doubt": {[]refusal{refused(0, -1, -1), refused(1, -1, -1)}, 0},
	} {
		c := &conductor{store: newStore(nil, parking.Task{}, nil), refused: tt.refused}
		if _, blocked := c.left(); blocked == nil || blocked.index != tt.want {
			t.Errorf("%s: it waits for %+v, want item %d", name, blocked, tt.want)
		}
	}
}
