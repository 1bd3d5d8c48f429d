package middleware

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/holdings"
	"github.com/railtoken/railtoken/internal/leasing"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/logsafe"
	"github.com/railtoken/railtoken/locking"
)

const (
	// defaultGrace is the default Grace.
	defaultGrace = 10 * time.Second
	// supersedeAgain is when a task that supersedes tells the holders of its keys once more: the first message may have been lost, or
	// the holder may be another one by now.
	supersedeAgain = 5 * time.Second
)

// Supersede parks a task in conflict before all other tasks that wait for its key, and has the handler of the task that holds the key
// stop, as when an order is cancelled while it is allocated. The context of that handler ends with a [CancelledError] as its cause that
// names the successor; its lease stays valid until it returns, so that it cleans up under its lock. It uses up no retry: its task ends
// as attach.LockOptions.OnSuperseded says. If it succeeds all the same, or has called Lease.MarkCommitted, its task is done. Then the
// successor runs.
//
// A handler that has not returned after Grace loses its lease (locking.LossDeposed) and with that its keys, while its process lives; the
// resource refuses what it writes late once the successor has claimed it (package fence). The lease of a process that stands still
// ends with its TTL.
//
// Only handlers of the same Group are stopped. For all others, and for holders of the key outside of tasks, the task waits, still before
// other tasks. Holders are told within milliseconds, or 5 s if the message is lost. A task of the group that waits is not ended, nor is one
// whose handler panics or whose worker dies: it runs after the successor. Of several tasks that wait to supersede the same group only the
// newest stays: the one that was refused or began last for the first time, by the clock of Redis and whatever happens to them afterwards, or
// the one that was enqueued last if that was with attach.Latest. The others end as superseded ones do.
//
// It works in BestEffort order only: with an order, no task overtakes another one, and handlers are not stopped.
type Supersede struct {
	// Grace is how long after it is told a handler may take to return: 10 s when zero.
	Grace time.Duration
	// Group is the group of the handlers that are to stop: see attach.LockOptions.Group. When empty it is that of the task's own
	// handler, and at an enqueue (attach.WhenHeld) the type of the task.
	Group string
}

// Decide returns Park, with the Supersede.
func (s Supersede) Decide(Conflict) Decision {
	return Decision{Outcome: Park, Delay: supersedeAgain, Supersede: &s}
}

// Validate returns what is wrong with Grace, or nil.
func (s Supersede) Validate() error {
	return leasing.CheckDuration("middleware: Supersede.Grace", s.Grace, leasing.LeastDuration)
}

func (Supersede) parks() bool { return true }

// supersedeOf returns the Supersede in a chain of wrapped strategies, or nil.
func supersedeOf(s Strategy) *Supersede {
	for {
		switch link := s.(type) {
		case Supersede:
			return &link
		case *Supersede:
			return link
		case interface{ Unwrap() Strategy }:
			s = link.Unwrap()
		default:
			return nil
		}
	}
}

// groupOf returns the group of the run.
func (r *run) groupOf() string { return cmp.Or(r.group.Name, r.task.Type()) }

// supersededGroup returns the group of the tasks that the task supersedes.
func (r *run) supersededGroup(s *Supersede) string { return cmp.Or(s.Group, r.groupOf()) }

// foremost returns the group that the task supersedes; "" if it does not.
func (r *run) foremost(s *Supersede) string {
	if s == nil {
		return ""
	}
	return r.supersededGroup(s)
}

// supersede has the parked task take the place of others.
func (r *run) supersede(ctx context.Context, how *Supersede, key string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wakeTimeout)
	defer cancel()
	s := holdings.Supersession{
		Keys: r.keys, Group: r.supersededGroup(how), Queue: r.id.Queue, ID: r.id.ID, Grace: how.Grace, Headers: r.task.Headers(),
	}
	ended, err := r.engine().Supersede(ctx, s, r.group.Discard)
	if err != nil {
		r.Logger.WarnContext(ctx, "tasks were not told that they are superseded; they are told when the task is refused again", "task",
			r.id.String(), "error", logsafe.Error(err))
	}
	for _, t := range ended {
		tell(ctx, r.Observer, r.Logger, &Event{
			Kind: Ended, Task: delayqueue.Task(t.Task), Type: t.Type, Keys: r.keys, Key: key, Err: supersededBy(s),
		})
	}
}

// supersededBy returns the error of a task.
func supersededBy(s holdings.Supersession) *CancelledError {
	by := delayqueue.Task{Queue: s.Queue, ID: s.ID}
	return &CancelledError{By: "task " + by.String(), Why: line.SupersededWhy, Next: by}
}

// supersedesItsGroup reports whether the task supersedes tasks of the group to which it belongs.
func (r *run) supersedesItsGroup() bool {
	own := supersedeOf(r.Strategy)
	return own != nil && r.order == BestEffort && r.supersededGroup(own) == r.groupOf()
}

// yieldsTo reports whether a task may take the place of the run. Of two that supersede each other, the older one yields, by when they were
// first refused or began to run, or by their payloads where only the latest runs. In order no task overtakes another one.
func (r *run) yieldsTo(s holdings.Supersession) bool {
	if s.Group != r.groupOf() || r.order != BestEffort {
		return false
	}
	if newer, known := line.IsNewerPayload(s.ID, s.Headers, r.id.ID, r.task.Headers()); known {
		return newer
	}
	return !r.supersedesItsGroup() || s.Since.IsZero() || s.Since.After(r.since)
}

// superseding is what becomes of a run that is superseded. It is safe for concurrent use.
type superseding struct {
	mu       sync.Mutex
	end      context.CancelCauseFunc // of the context of the handler
	returned bool                    // the handler has
	graces   map[*locking.Lease]grace
}

// grace ends at a time.
type grace struct {
	at    time.Time
	timer *time.Timer
}

// Supersede ends the context of the handler, and takes its lease once the Grace is over, unless the run goes on beside the task.
func (r *run) Supersede(s holdings.Supersession, held holdings.Lease) {
	lease, ok := held.(*locking.Lease)
	if !ok || !r.yieldsTo(s) {
		return
	}
	on := r.superseding
	on.mu.Lock()
	defer on.mu.Unlock()
	if on.returned {
		return
	}
	if s.Grace <= 0 {
		s.Grace = defaultGrace
	}
	e := supersededBy(s)
	if r.group.Discard {
		e.Outcome = Discard
	}
	locks.Last(lease)
	on.end(e)
	next := grace{at: time.Now().Add(s.Grace)}
	if before, ok := on.graces[lease]; ok {
		if sooner := next.at.Before(before.at); !sooner || !before.timer.Stop() {
			return
		}
	}
	if on.graces == nil {
		on.graces = map[*locking.Lease]grace{}
	}
	next.timer = time.AfterFunc(s.Grace, func() { r.depose(e, s, lease) })
	on.graces[lease] = next
}

// handlerReturned ends the Grace: what the handler has done counts.
func (s *superseding) handlerReturned() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.returned = true
	for lease := range s.graces {
		s.keep(lease)
	}
}

// itemReturned does so for the handler of an item.
func (s *superseding) itemReturned(lease *locking.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep(lease)
}

// keep has a lease stay with its holder. The caller holds the mutex.
func (s *superseding) keep(lease *locking.Lease) {
	if g, ok := s.graces[lease]; ok {
		g.timer.Stop()
		delete(s.graces, lease)
	}
}

// depose takes a lease from a handler that has not returned within the Grace, and wakes those that wait for its keys.
func (r *run) depose(e *CancelledError, s holdings.Supersession, lease *locking.Lease) {
	r.superseding.mu.Lock()
	_, deposed := r.superseding.graces[lease]
	deposed = deposed && locks.Depose(lease, e.By, e.Why)
	r.superseding.mu.Unlock()
	if !deposed {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), wakeTimeout)
	defer cancel()
	r.Logger.WarnContext(ctx, "a handler was superseded and has not returned in time; its keys were taken away", "task", r.id.String(),
		"type", r.task.Type(), "next", e.Next.String(), "grace", s.Grace)
	r.giveUp(ctx, lease)
}
