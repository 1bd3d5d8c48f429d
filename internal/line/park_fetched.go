package line

import (
	"context"
	"fmt"
	"time"

	"github.com/railtoken/railtoken/internal/broker"
)

// Park parks a task that was refused when it was fetched, without a run, or lets it wait in memory for its lease first.
func (e *tasks) Park(f broker.Fetched, parked func(), deliver func() bool) bool {
	kind := textOf(f.Message, typeField)
	parker := e.parkers.of(kind)
	if parker == nil {
		return false
	}
	if passed(deadlineOf(f.Message), time.Now()) {
		return false // asynq ends it without a run of its handler
	}
	r := e.runOf(f)
	attempt := int(varintOf(f.Message, retriedField))
	if !parker.ParkFetched(r, Refused{
		Task: r.task, Type: kind, Attempt: attempt, Left: max(int(varintOf(f.Message, retryField))-attempt, 0),
		Woken: f.Woken, Sure: func() bool { return e.parkers.keysNow(f.Message) == f.Recorded }, Refused: f.Refused,
	}) {
		return false
	}
	e.runs.add(r)
	r.mu.Lock()
	p := r.parking
	r.ended, p.over, p.deliver = r.since, parked, deliver
	parks := r.parkInBackground(p, r.since.Add(fetchedLease))
	r.mu.Unlock()
	if !parks {
		e.runs.drop(r)
		r.giveUp(p)
	}
	return parks
}

// giveUp releases a lease that has come to a task which cannot wait for it.
func (r *Run) giveUp(p *parking) {
	if p.follow == nil {
		return
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if held := p.follow(ended); held != nil {
		r.Reject(context.Background(), held, nil)
	}
}

// follows has the task wait in memory for its lease, and reports whether asynq has it now.
func (r *Run) follows(p *parking) bool {
	if p.follow == nil {
		return false
	}
	p.over()
	p.over = nil
	held := p.follow(r.queue.closing)
	if held == nil {
		return false
	}
	r.mu.Lock()
	r.held, r.parking, r.inBackground, r.ended = held, nil, false, time.Time{}
	r.mu.Unlock()
	if r.current() && p.deliver() {
		return true
	}
	r.mu.Lock()
	r.parking, r.inBackground, r.ended = p, true, r.since
	r.mu.Unlock()
	if release := r.takeRelease(); release != nil { // it is parked on a key that is free then
		release.Run(context.Background(), false)
	}
	return false
}

// fetchedLease limits how long a fetched task belongs to this server: asynq's lease on it, less the difference that the
// clocks of servers may have.
const fetchedLease = 25 * time.Second

// parkingAtFetch has tasks parked by the script that fetches them, and woken by the one that acknowledges them.
func (e *Engine) parkingAtFetch() *broker.Parking {
	// The keys of that script are not those that the functions expect.
	constants := fmt.Sprintf("local KEYS, parked, idle_waiters, owed_for, head_look, lost_after, left_after = {}, %q, %d, %d, %d, %d, %d\n",
		e.names.start(), idleWaiters.Milliseconds(), owedAfter.Milliseconds(), headLook.Milliseconds(), int(LostAfter.Seconds()), int(LeftAfter.Seconds()))
	return &broker.Parking{
		Source:   constants + composed("return park, wakeReleased, parse, leaveWaiters, admit, begin, depart, ready"),
		Unserved: e.notFetched, Parked: (*tasks)(e).parkedAtFetch,
	}
}

// notFetched returns the queues of which no server fetched tasks when the list was last read.
func (e *Engine) notFetched() []string {
	queues, _ := e.lastUnserved()
	return queues
}

// parkedAtFetch tells the Parkers of tasks that a script has parked. It does not wait for them, because another fetch may
// follow.
func (e *tasks) parkedAtFetch(groups []broker.Parked) {
	tell := func(context.Context) {
		for _, g := range groups {
			parker := e.parkers.of(g.Type)
			if parker == nil {
				continue
			}
			places := make([]Parked, len(g.IDs))
			for i, id := range g.IDs {
				places[i] = Parked{
					Conflict: Conflict{Count: 1, First: g.First}, Task: Task{Queue: g.Queue, ID: id}, Looked: true,
					Waiters: g.Ahead + i + 1, Ahead: g.Ahead + i,
				}
			}
			parker.Parked(Refused{Type: g.Type, Refused: g.Refused}, places)
		}
	}
	if !(*Engine)(e).background(e.closing, tellTimeout, tell) {
		tell(e.closing)
	}
}

// tellTimeout is nominal, because the Parkers make no calls to Redis.
const tellTimeout = time.Minute
