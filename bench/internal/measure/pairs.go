package measure

import (
	"runtime"
	"slices"
	"sync"
	"time"
)

// afterFailure is how long a caller rests after a pair that failed, so that one that fails at once does not burn the
// processor that the others need.
const afterFailure = time.Millisecond

// Load is a number of callers that each do one pair after another, first for Warm, which does not count, then for For.
type Load struct {
	Callers   int
	Warm, For time.Duration
}

// Sample is what callers got done.
type Sample struct {
	// Done is the number of pairs that ended in time, Failed that of pairs that ended with an error.
	Done, Failed int
	// Latencies are the times of the pairs done, sorted. A pair that was still under way at the end is among them with
	// the time it had taken so far: what hangs must not vanish from the figures.
	Latencies []time.Duration
	// Unfinished is how many of the Latencies are such.
	Unfinished int
	// Err is one of the errors, if any.
	Err error

	took time.Duration
}

// Rate returns the pairs done in a second.
func (s Sample) Rate() float64 {
	if s.Done == 0 {
		return 0
	}
	return float64(s.Done) / s.took.Seconds()
}

// Pairs puts the load on pair, which is given the number of its caller, and returns what came of it as soon as the time
// is over. Pairs that hang go on after it: left returns when the last of them has ended.
func Pairs(load Load, pair func(caller int) error) (sample Sample, left func()) {
	runtime.GC() // the garbage of the last contestant is not this one's
	from := time.Now().Add(load.Warm)
	until := from.Add(load.For)
	callers := make([]pairCaller, load.Callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() { callers[i].run(i, from, until, pair) })
	}
	all := make(chan struct{})
	go func() {
		wg.Wait()
		close(all)
	}()
	// Callers that are about to end get the time to do so; callers that hang do not.
	select {
	case <-all:
	case <-time.After(time.Until(until) + 20*time.Millisecond):
	}
	sample.took = load.For
	for i := range callers {
		callers[i].addTo(&sample, until)
	}
	slices.Sort(sample.Latencies)
	return sample, wg.Wait
}

// pairCaller is one caller. The mutex is for the look at callers that hang.
type pairCaller struct {
	mu        sync.Mutex
	began     time.Time // of the pair under way; zero when there is none
	latencies []time.Duration
	failed    int
	err       error
}

func (c *pairCaller) run(i int, from, until time.Time, pair func(int) error) {
	for began := time.Now(); began.Before(until); {
		c.begin(began)
		err := pair(i)
		ended := time.Now()
		c.end(began, ended, from, until, err)
		if err != nil {
			time.Sleep(afterFailure)
			ended = time.Now()
		}
		began = ended
	}
}

func (c *pairCaller) begin(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.began = at
}

func (c *pairCaller) end(began, ended, from, until time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ended.After(until) {
		return // it was under way at the end
	}
	c.began = time.Time{}
	if ended.Before(from) {
		return
	}
	if err != nil {
		c.failed++
		c.err = err
		return
	}
	c.latencies = append(c.latencies, ended.Sub(began))
}

// addTo adds what the caller has done to the sample.
func (c *pairCaller) addTo(s *Sample, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Done += len(c.latencies)
	s.Failed += c.failed
	s.Latencies = append(s.Latencies, c.latencies...)
	if c.err != nil {
		s.Err = c.err
	}
	if !c.began.IsZero() && until.After(c.began) {
		s.Unfinished++
		s.Latencies = append(s.Latencies, until.Sub(c.began))
	}
}
