package quorum_test

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/railtoken/railtoken/internal/quorum"
)

func TestAClockNeverGoesBack(t *testing.T) {
	t.Parallel()
	var c quorum.Clock
	const most = 9000
	for i, step := range []struct{ see, wall, size, want int64 }{
		{0, 1000, 1, 1000},
		{0, 1000, 1, 1001}, // the same microsecond
		{0, 2000, 16, 2015},
		{0, 2001, 16, 2031}, // within the block before
		{0, 500, 1, 2032},   // set back
		{5000, 3000, 4, 5004},
		{4000, 3000, 1, 5005},     // a smaller counter changes nothing
		{most + 1, 3000, 1, 5006}, // one that is no clock's neither
		{most, 3000, 1, most + 1},
	} {
		c.See(step.see, most)
		if got := c.Propose(step.wall, step.size); got != step.want {
			t.Errorf("step %d: %d, want %d", i, got, step.want)
		}
	}
}

func TestBlocksOfOneClockRise(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var c quorum.Clock
		var above int64
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "see") {
				counter := rapid.Int64Range(0, 1000).Draw(t, "counter")
				c.See(counter, math.MaxInt64)
				above = max(above, counter)
			}
			wall, size := rapid.Int64Range(1, 1000).Draw(t, "wall"), rapid.Int64Range(1, 16).Draw(t, "size")
			top := c.Propose(wall, size)
			if top-size < above || top-size+1 < wall {
				t.Fatalf("block %d-%d at %d, after %d", top-size+1, top, wall, above)
			}
			above = top
		}
	})
}

func TestBlocksOfConcurrentCallersAreDisjoint(t *testing.T) {
	t.Parallel()
	const callers, each, size = 8, 1000, 5
	var c quorum.Clock
	var wg sync.WaitGroup
	tops := make([][]int64, callers)
	for i := range tops {
		wg.Go(func() {
			for n := range int64(each) {
				top := c.Propose(n*int64(i), size) // every caller has a clock of its own
				tops[i] = append(tops[i], top)
				c.See(top+n%3, math.MaxInt64)
			}
		})
	}
	wg.Wait()
	var all []int64
	for i, own := range tops {
		if !slices.IsSorted(own) {
			t.Errorf("caller %d went back", i)
		}
		all = append(all, own...)
	}
	slices.Sort(all)
	for i := 1; i < len(all); i++ {
		if all[i]-all[i-1] < size {
			t.Fatalf("blocks up to %d and %d overlap", all[i-1], all[i])
		}
	}
}

func TestConcurrentCallersHideNoCounter(t *testing.T) {
	t.Parallel()
	const callers, each = 4, 500_000
	var c quorum.Clock
	var next atomic.Int64 // the callers stay close together, so they meet in See
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range each {
				counter := next.Add(1)
				c.See(counter, math.MaxInt64)
				if last := c.Last(); last < counter {
					t.Errorf("counter %d was seen, and the last is %d", counter, last)
					return
				}
			}
		})
	}
	wg.Wait()
}
