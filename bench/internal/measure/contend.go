package measure

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Hold is how long a caller keeps a key that others wait for.
const Hold = time.Millisecond

// Window is the time in which acquisitions count. Callers begin before it, so that it sees them in full swing.
type Window struct {
	From, Until time.Time
}

// Has reports whether t lies in the window.
func (w Window) Has(t time.Time) bool { return !t.Before(w.From) && t.Before(w.Until) }

// Contention is how callers shared their keys.
type Contention struct {
	// Acquired is the number of acquisitions in the window, Waited the sum of their waits.
	Acquired int
	Waited   time.Duration
	// Longest is the longest wait, also one that had no end in the window.
	Longest time.Duration
	// Overlaps counts holds of a key during which another caller of this process held it too. It must be 0.
	Overlaps int
	// Failed counts attempts that ended with an error in the window; Err is one of those errors.
	Failed int
	Err    string `json:",omitempty"`
}

// Add adds what the callers of another process did.
func (c *Contention) Add(other Contention) {
	c.Acquired += other.Acquired
	c.Waited += other.Waited
	c.Longest = max(c.Longest, other.Longest)
	c.Overlaps += other.Overlaps
	c.Failed += other.Failed
	if other.Err != "" {
		c.Err = other.Err
	}
}

// MeanWait is the mean wait of the acquisitions.
func (c *Contention) MeanWait() time.Duration {
	if c.Acquired == 0 {
		return 0
	}
	return c.Waited / time.Duration(c.Acquired)
}

// Contend lets callers take a key in a loop, hold it and give it back, until the window ends: then the context of
// callers that still wait is cancelled. Each caller has one of the keys, which are numbered from 0, and every key as
// many callers as any other, or one more. do acquires, calls hold and releases; an error of do after a hold is one of
// the release.
func Contend(
	ctx context.Context, w Window, callers, keys int, do func(ctx context.Context, key int, hold func()) error,
) Contention {
	runtime.GC()
	// Not a deadline: some locks would take it for their own end.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(time.Until(w.Until), cancel).Stop()
	var (
		mu    sync.Mutex
		total Contention
		held  = make([]atomic.Int32, keys)
		wg    sync.WaitGroup
	)
	for i := range callers {
		wg.Go(func() {
			key := i % keys
			mine := contendOnce(ctx, w, &held[key], func(ctx context.Context, hold func()) error { return do(ctx, key, hold) })
			mu.Lock()
			defer mu.Unlock()
			total.Add(mine)
		})
	}
	wg.Wait()
	return total
}

// contendOnce is one caller.
func contendOnce(ctx context.Context, w Window, held *atomic.Int32, do func(context.Context, func()) error) (c Contention) {
	for asked := time.Now(); ctx.Err() == nil; {
		got := false
		err := do(ctx, func() {
			got = true
			if now := time.Now(); w.Has(now) {
				wait := now.Sub(asked)
				c.Acquired++
				c.Waited += wait
				c.Longest = max(c.Longest, wait)
			}
			if held.Add(1) > 1 {
				c.Overlaps++
			}
			time.Sleep(Hold)
			held.Add(-1)
		})
		now := time.Now()
		if err != nil && w.Has(now) {
			c.Failed++
			c.Err = err.Error()
			time.Sleep(afterFailure)
		}
		switch {
		case got:
			asked = now
		case !now.Before(w.Until):
			c.Longest = max(c.Longest, w.Until.Sub(asked))
		}
	}
	return c
}
