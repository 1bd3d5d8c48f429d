package line

import "time"

// wakeLooks is how many waiters one call of wake.lua checks.
const wakeLooks = 100

// Woken is the result of a wake.
type Woken struct {
	// Tasks are the waiters that were moved to the heads of their queues, in order; empty when none could run.
	Tasks []Task
	// Pending reports that the next waiter's slot moves between nodes of a Cluster: it is woken in the background once
	// the slot has arrived.
	Pending bool
	// Left is how many tasks still wait for the key.
	Left int
	// Head is the head of the key's sequence if [Engine.WakeNext] has not woken it, because it is not parked; else zero.
	Head Task
	// Lost and Begun say of Head what they say of the first task of a [Front].
	Lost, Begun bool

	gone    bool // a task that was to be woken cannot run any more
	inSteps bool // no script has noted that the wake is owed
	unmade  bool // Redis has not answered, and the wake is Pending
}

// WakeOptions says which waiters [Engine.Wake] wakes. The zero value wakes the next one.
type WakeOptions struct {
	// Leaver is the task that releases the key, or has taken it, and whose own entry is removed; none when zero.
	Leaver Task
	// Most is how many waiters are woken at most; 1 when zero, at most 100.
	Most int
}

// KeyWake is a wake for one of several keys.
type KeyWake struct {
	Key string
	WakeOptions
}

// KeyWoken is what a [KeyWake] has done, or why it failed.
type KeyWoken struct {
	Woken
	Err error
}

// wakeTarget says which waiter a wake is for.
type wakeTarget struct {
	key  string
	task Task // the next waiter when zero
}

// call is one wake. Its entries are empty when there is none.
type call struct {
	target                wakeTarget
	waiters, leaver, only string
	// late are tasks that were woken before and have not come: the wake skips the waiters of their queues.
	late []Task
	held []string // queues whose waiters are skipped, because no server would fetch them
	// starved is how many of them, the last ones, are skipped only if another waiter can run: their turn comes by itself.
	starved int
	// hope says that the queues in held may be served again: when no other waiter can run, the first one is put at the
	// head of its queue for then.
	hope bool
	most int
}

// withStarved returns the call without its leaver that follows when no waiter of another queue than the starved ones can
// run: it wakes one of those.
func (c call) withStarved() call {
	c.held, c.starved, c.leaver, c.hope = c.held[:len(c.held)-c.starved], 0, "", len(c.late) == 0
	return c
}

// lastWake is the last wake of a key that has more waiters. A woken task may never come: it was deleted or archived
// before a worker fetched it, its queue was paused or lost its workers, or all of these are busy. Then no task would
// release the key, and the waiters would have to wait for their timers. A wake of a waiter whose slot is moving is
// retried until the slot has arrived, and one that Redis does not answer until it does.
type lastWake struct {
	target  wakeTarget // one task, when WakeTask woke it; else any waiter
	tasks   []Task
	again   bool      // it is made again: it has not reached a task yet
	failed  bool      // the last check has failed
	silent  time.Time // since when Redis does not answer a wake that is made again; else zero
	wait    time.Duration
	timer   *time.Timer
	owed    time.Time // when another process looks whether a task has come
	changes int
}
