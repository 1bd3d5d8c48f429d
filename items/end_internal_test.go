package items

import (
	"strconv"
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/locking"
)

func TestTheKeyTakenLastIsExpectedFirst(t *testing.T) {
	t.Parallel()
	now := time.Now()
	refused := func(index int, held, remaining time.Duration) refusal {
		h := locking.Holder{Remaining: remaining}
		if held != -1 {
			h.Since = now.Add(-held)
		}
		return refusal{index: index, held: &locking.HeldError{Key: strconv.Itoa(index), Holder: h}, at: now}
	}
	const s = time.Second
	for name, tt := range map[string]struct {
		first, second refusal
		want          int
	}{
		"a long audit is renewed":     {refused(0, 60*s, 21*s), refused(1, s/1000, 30*s), 1},
		"a holder has died":           {refused(0, 20*s, s), refused(1, 10*s, 25*s), 0},
		"another program holds one":   {refused(0, -1, -1), refused(1, 3600*s, 29*s), 1},
		"a holder's clock is ahead":   {refused(0, s, 60*s), refused(1, -5*s, 60*s), 1},
		"other programs hold all":     {refused(0, -1, -1), refused(1, -1, 3*s), 1},
		"the first one when in doubt": {refused(0, -1, -1), refused(1, -1, -1), 0},
	} {
		c := &conductor{store: newStore(nil, line.Task{}, nil), refused: []refusal{tt.first, tt.second}}
		if _, blocked := c.left(); len(blocked) != 2 || blocked[0].index != tt.want {
			t.Errorf("%s: it waits for %+v, want item %d first", name, blocked, tt.want)
		}
	}
}
