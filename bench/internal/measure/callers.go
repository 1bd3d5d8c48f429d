package measure

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// afterFailure is how long a caller rests after an error, so that one that fails at once does not burn the processor
// that the others need.
const afterFailure = time.Millisecond

// Window is the time in which counts what callers do. They begin before it, so that it sees them in full swing.
type Window struct {
	From, Until time.Time
}

// After returns a window that opens when callers have warmed up, from now on.
func After(warm, length time.Duration) Window {
	runtime.GC() // the garbage of the last contestant is not this one's
	from := time.Now().Add(warm)
	return Window{From: from, Until: from.Add(length)}
}

// Sample is what callers got done in a window.
type Sample struct {
	// Latencies are how long the callers waited for what they got.
	Latencies []time.Duration
	// Hung are how long those had waited so far that still waited at the end.
	Hung []time.Duration
	// Failed counts the errors; Err is one of them.
	Failed int
	Err    string `json:",omitempty"`
	// Overlaps counts holds of a key during which another caller of this process held it too. It must be 0.
	Overlaps int
}

// Done is how many times a caller got what it wanted.
func (s *Sample) Done() int { return len(s.Latencies) }

// Sorted returns all latencies: what hangs must not vanish from the figures.
func (s *Sample) Sorted() []time.Duration {
	return slices.Sorted(slices.Values(slices.Concat(s.Latencies, s.Hung)))
}

// Add adds what other callers did.
func (s *Sample) Add(other Sample) {
	s.Latencies = append(s.Latencies, other.Latencies...)
	s.Hung = append(s.Hung, other.Hung...)
	s.Failed += other.Failed
	s.Overlaps += other.Overlaps
	if other.Err != "" {
		s.Err = other.Err
	}
}

// Callers lets some callers do the same in a loop until the window ends, and returns what came of it as soon as it has.
// do is given the number of its caller, and calls got when it has what it waited for. Callers that hang go on: left
// returns when the last of them has ended.
func Callers(n int, w Window, do func(caller int, got func()) error) (sample Sample, left func()) {
	callers := make([]caller, n)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() { callers[i].run(w, func(got func()) error { return do(i, got) }) })
	}
	all := make(chan struct{})
	go func() {
		wg.Wait()
		close(all)
	}()
	// Callers that are about to end get the time to do so; callers that hang do not.
	select {
	case <-all:
	case <-time.After(time.Until(w.Until) + 20*time.Millisecond):
	}
	for i := range callers {
		sample.Add(callers[i].sample(w))
	}
	return sample, wg.Wait
}

// caller is one of them. The mutex is for the look at those that hang.
type caller struct {
	mu    sync.Mutex
	since time.Time // of the wait under way; zero when there is none
	got   Sample
}

func (c *caller) run(w Window, do func(got func()) error) {
	got := func() { c.note(w, nil) }
	for now := time.Now(); now.Before(w.Until); now = time.Now() {
		c.mu.Lock()
		c.since = now
		c.mu.Unlock()
		if err := do(got); err != nil {
			c.note(w, err)
			time.Sleep(afterFailure)
		}
	}
}

// note notes the end of a wait, or an error.
func (c *caller) note(w Window, err error) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !now.Before(w.Until) {
		return // it still waited at the end
	}
	since := c.since
	c.since = time.Time{}
	switch {
	case now.Before(w.From):
	case err != nil:
		c.got.Failed++
		c.got.Err = err.Error()
	default:
		c.got.Latencies = append(c.got.Latencies, now.Sub(since))
	}
}

// sample returns what the caller got.
func (c *caller) sample(w Window) Sample {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.since.IsZero() && w.Until.After(c.since) {
		c.got.Hung = append(c.got.Hung, w.Until.Sub(c.since))
	}
	return c.got
}

// Hold is how long a caller keeps a key that others wait for.
const Hold = time.Millisecond

// Contend lets callers take a key in a loop, hold it and give it back, until the window ends: then the context of
// callers that still wait is cancelled. Each caller has one of the keys, which are numbered from 0, and every key as
// many callers as any other, or one more. do acquires, calls hold and releases; an error of do after a hold is one of
// the release.
func Contend(
	ctx context.Context, w Window, callers, keys int, do func(ctx context.Context, key int, hold func()) error,
) Sample {
	runtime.GC() // in this process, too
	// Not a deadline: some locks would take it for their own end.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(time.Until(w.Until), cancel).Stop()
	held, overlaps := make([]atomic.Int32, keys), atomic.Int32{}
	sample, left := Callers(callers, w, func(i int, got func()) error {
		key := i % keys
		return do(ctx, key, func() {
			got()
			if held[key].Add(1) > 1 {
				overlaps.Add(1)
			}
			time.Sleep(Hold)
			held[key].Add(-1)
		})
	})
	left()
	sample.Overlaps = int(overlaps.Load())
	return sample
}
