package attach

import (
	"math"
	"testing"
	"time"
)

func TestRoundUpDoesNotOverflow(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{math.MaxInt64, math.MaxInt64 - time.Second} {
		if got := roundUp(d); got <= 0 || got%time.Second != 0 {
			t.Errorf("%d is rounded up to %d", d, got)
		}
	}
}
