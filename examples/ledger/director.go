package main

import (
	"maps"
	"slices"
	"time"
)

// director decides which worker is stopped or killed, and when. It makes the stalls that a ledger must survive:
//
// A worker that has read its balances is stopped for longer than the TTL, until another worker has read one of the same accounts.
// Every other time it is continued at once, and writes before the other worker does; else it writes after that one.
//
// Workers are killed between their read and their write, or between their commit and its acknowledgement. Then the task runs again.
//
// Each worker runs one handler at a time, which waits for an answer after its read and after its end.
type director struct {
	ttl                time.Duration
	stopEach, killEach int // reads
	maxStopped         int // workers at the same time

	reads, stops, kills, overtaken int
	stopped                        map[int]*stopped
	killAtEnd                      map[int]bool
}

// stopped is a worker that does not run, or has been continued and has not written yet.
type stopped struct {
	transfer transfer
	since    time.Time
	after    int // the worker whose end continues this one; 0: none yet
	before   int // the worker that is answered when this one has written; 0: none
	woken    time.Time
}

// What happens to a worker.
type (
	action struct {
		do     deed
		worker int
	}
	deed string
)

// The deeds.
const (
	answer deed = "answer" // lets its handler go on
	pause  deed = "pause"  // SIGSTOP
	wake   deed = "wake"   // SIGCONT, and an answer
	kill   deed = "kill"   // SIGKILL
)

func newDirector(ttl time.Duration, transfers, stops, kills, workers int) *director {
	each := func(n int) int { return max(1, transfers/max(1, n)) }
	return &director{
		ttl: ttl, stopEach: each(stops), killEach: each(kills), maxStopped: max(1, workers/2),
		stopped: map[int]*stopped{}, killAtEnd: map[int]bool{},
	}
}

// read decides on a worker that has read the balances of a transfer. Workers have numbers from 1.
func (d *director) read(now time.Time, worker int, t transfer) []action {
	d.reads++
	for _, id := range slices.Sorted(maps.Keys(d.stopped)) {
		s := d.stopped[id]
		if s.after != 0 || !s.woken.IsZero() || now.Sub(s.since) < d.ttl*5/4 || !s.transfer.touches(t) {
			continue
		}
		d.overtaken++
		if d.overtaken%2 == 0 {
			s.after = worker
			return []action{{answer, worker}}
		}
		s.woken, s.before = now, worker
		return []action{{wake, id}}
	}
	switch {
	case d.reads >= (d.kills+1)*d.killEach:
		d.kills++
		if d.kills%2 == 0 {
			return []action{{kill, worker}}
		}
		d.killAtEnd[worker] = true
	case d.reads >= (d.stops+1)*d.stopEach && len(d.stopped) < d.maxStopped:
		d.stops++
		d.stopped[worker] = &stopped{transfer: t, since: now}
		return []action{{pause, worker}}
	}
	return []action{{answer, worker}}
}

// ended decides on a worker whose handler has ended and is not acknowledged. One that has committed nothing is not worth a kill.
func (d *director) ended(now time.Time, worker int, committed bool) []action {
	acts := d.leave(now, worker)
	if committed && d.killAtEnd[worker] {
		delete(d.killAtEnd, worker)
		return append(acts, action{kill, worker})
	}
	return append(acts, action{answer, worker})
}

// leave lets those go on that wait for a worker that has ended its work, or itself.
func (d *director) leave(now time.Time, worker int) (acts []action) {
	if s := d.stopped[worker]; s != nil {
		delete(d.stopped, worker)
		if s.before != 0 {
			acts = append(acts, action{answer, s.before})
		}
	}
	for id, s := range d.stopped {
		if s.before == worker {
			s.before = 0
		}
		if s.after == worker && s.woken.IsZero() {
			s.woken = now
			acts = append(acts, action{wake, id})
		}
	}
	return acts
}

// tick ends stalls during which no other worker has come, and waits for a worker that does not write.
func (d *director) tick(now time.Time) (acts []action) {
	for id, s := range d.stopped {
		if s.woken.IsZero() && now.Sub(s.since) > 3*d.ttl {
			s.woken = now
			acts = append(acts, action{wake, id})
		}
		if s.before != 0 && now.Sub(s.woken) > 2*d.ttl {
			acts = append(acts, action{answer, s.before})
			s.before = 0
		}
	}
	return acts
}
