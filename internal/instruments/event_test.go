package instruments

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// newEvents returns Events whose series are measurements of nothing.
func newEvents() *Events[Measurement] {
	return NewEvents(func(i *Instrument, labels []string) Measurement { return i.of(0, labels...) })
}

// measure returns what an event adds.
func measure(events *Events[Measurement], e *middleware.Event) (all []Measurement) {
	for _, s := range events.Append(nil, e) {
		all = append(all, s.Series.Instrument.of(s.Value, s.Series.Labels...))
	}
	return all
}

func TestAnEventIsCountedOnceForWhatItSays(t *testing.T) {
	t.Parallel()
	conflict := func(o middleware.Outcome, l delayqueue.Limit) error {
		return fmt.Errorf("wrapped: %w", &middleware.ConflictError{Outcome: o, Limit: l})
	}
	loss := func(r locking.LossReason) error { return fmt.Errorf("wrapped: %w", &locking.LostError{Reason: r}) }
	for _, tc := range []struct {
		event middleware.Event
		want  string
	}{
		{middleware.Event{Kind: middleware.Refused}, "waits[t q]=1"},
		{middleware.Event{Kind: middleware.Parked}, ""},
		{middleware.Event{Kind: middleware.Acquired}, "attempts[t q acquired]=1"},
		{
			middleware.Event{Kind: middleware.Acquired, Waited: 2 * time.Second},
			"attempts[t q acquired]=1 wait[t q]=2 conflicts[t q waited]=1",
		},
		{
			middleware.Event{Kind: middleware.Acquired, Woken: 20 * time.Millisecond, Took: time.Millisecond, Backend: "redis"},
			"attempts[t q acquired]=1 wake[t q]=0.02 acquire[redis]=0.001",
		},
		{middleware.Event{Kind: middleware.Acquired, WakeLost: true}, "attempts[t q acquired]=1 wakes.lost[q]=1"},
		{
			middleware.Event{Kind: middleware.Woke, Cause: middleware.ByRepair, WakeLost: true, Next: delayqueue.Task{Queue: "next"}},
			"wakes[next repair]=1 wakes.lost[next]=1",
		},
		{middleware.Event{Kind: middleware.Released, Held: 1500 * time.Millisecond}, "hold[t q]=1.5"},
		{
			middleware.Event{Kind: middleware.Ended, Err: conflict(middleware.Park, "")},
			"attempts[t q held]=1 conflicts[t q parked]=1",
		},
		{
			middleware.Event{Kind: middleware.Ended, Err: conflict(middleware.Archive, "")},
			"attempts[t q held]=1 conflicts[t q failed]=1",
		},
		{
			middleware.Event{Kind: middleware.Ended, Err: conflict(middleware.Archive, delayqueue.AgeLimit)},
			"attempts[t q held]=1 conflicts[t q limit]=1",
		},
		{middleware.Event{Kind: middleware.Ended, Err: locking.ErrLost}, "attempts[t q held]=1 conflicts[t q failed]=1"},
		{middleware.Event{Kind: middleware.Unavailable}, "attempts[t q unavailable]=1"},
		{
			middleware.Event{Kind: middleware.Woke, Cause: middleware.ByTimer, Next: delayqueue.Task{Queue: "next"}},
			"wakes[next timer]=1",
		},
		{middleware.Event{Kind: middleware.Lost, Err: loss(locking.LossTaken)}, "leases.lost[t q taken]=1"},
		{middleware.Event{Kind: middleware.Lost, Err: loss(locking.LossExpired)}, "leases.lost[t q expired]=1"},
		{middleware.Event{Kind: middleware.Lost, Err: loss(locking.LossMaxHold)}, "leases.lost[t q max_hold]=1"},
		{middleware.Event{Kind: middleware.Lost, Err: loss(locking.LossDeposed)}, "leases.lost[t q deposed]=1"},
		{middleware.Event{Kind: middleware.Lost}, "leases.lost[t q expired]=1"},
		{middleware.Event{Kind: "of a later version"}, ""},
	} {
		tc.event.Type, tc.event.Task.Queue = "t", "q"
		tc.event.Key, tc.event.Keys = "order:1042", []string{"order:1042"}
		var got []string
		for _, m := range measure(newEvents(), &tc.event) {
			if m.Value != 0 { // a series that is created
				got = append(got, fmt.Sprintf("%s%v=%v", m.Name, m.Labels, m.Value))
			}
		}
		if s := strings.Join(got, " "); s != tc.want {
			t.Errorf("%+v: %s, want %s", tc.event, s, tc.want)
		}
	}
}

// The increase of a series that begins with its first event is zero, and no alert would fire.
func TestCountersExistBeforeTheirFirstEvent(t *testing.T) {
	t.Parallel()
	events := newEvents()
	begun := measure(events, &middleware.Event{Kind: middleware.Acquired, Type: "t", Task: delayqueue.Task{Queue: "q"}})
	for _, e := range []middleware.Event{
		{Kind: middleware.Lost, Err: &locking.LostError{Reason: locking.LossTaken}},
		{Kind: middleware.Ended, Err: &middleware.ConflictError{Outcome: middleware.Archive, Limit: delayqueue.AgeLimit}},
		{Kind: middleware.Woke, Cause: middleware.ByTimer, Next: delayqueue.Task{Queue: "q"}},
		{Kind: middleware.Unavailable},
		{Kind: middleware.Woke, Cause: middleware.ByRepair, WakeLost: true, Next: delayqueue.Task{Queue: "q"}},
	} {
		e.Type, e.Task.Queue = "t", "q"
		of := measure(events, &e)
		m := of[len(of)-1]
		if !slices.ContainsFunc(begun, func(b Measurement) bool {
			return b.Instrument == m.Instrument && slices.Equal(b.Labels, m.Labels)
		}) {
			t.Errorf("%s%v begins with its first event", m.Name, m.Labels)
		}
	}
}

func TestATaskWithoutAConflictTakesNoMemory(t *testing.T) {
	events := newEvents()
	began := middleware.Event{
		Kind: middleware.Acquired, Type: "t", Task: delayqueue.Task{Queue: "q"}, Took: time.Millisecond, Backend: "redis",
	}
	measure(events, &began)
	ended := middleware.Event{Kind: middleware.Released, Type: "t", Task: delayqueue.Task{Queue: "q"}, Held: time.Second}
	n := 0
	if allocs := testing.AllocsPerRun(100, func() {
		var buffer [Most]Sample[Measurement]
		n += len(events.Append(buffer[:0], &began)) + len(events.Append(buffer[:0], &ended))
	}); allocs > 0 || n == 0 {
		t.Errorf("%v allocations for %d measurements", allocs, n)
	}
}

func TestLabelsAreValidText(t *testing.T) {
	t.Parallel()
	for _, m := range measure(newEvents(), &middleware.Event{Kind: middleware.Refused, Type: "a\xffb", Task: delayqueue.Task{Queue: "\xfe"}}) {
		if m.Labels[0] != "a\uFFFDb" || m.Labels[1] != "\uFFFD" {
			t.Errorf("%q", m.Labels)
		}
	}
}
