package locking

import (
	"sync"
	"time"

	"github.com/railtoken/railtoken/internal/lockwire"
)

// defaultHandOffs is how many times in a row a Gate hands a lease off.
const defaultHandOffs = 15

// GateOptions configures a [Gate]. The zero value uses the defaults.
type GateOptions struct {
	// HandOffs is how many times in a row a lease is handed off within the process before other processes get their turn:
	// 15 when zero, so that up to 16 holders follow each other. More than 255 count as 255, because a block has 256 tokens
	// at most. A negative value disables hand-offs.
	HandOffs int
}

// Gate is a [Locker] in front of another one. It keeps the callers of one process from competing at the servers.
//
// A key that this process holds is refused to its other callers without asking the servers. Callers of [Wait], [Do] and
// [Collect] form a queue for each key, and only the first caller asks the servers. If the next caller
// waits for the same keys, with the same TTL and no longer MaxHold, a release leaves the lock on the servers: the lease is
// handed off in memory, with a fencing token of its own from a reserved block. This stops after HandOffs times in a row, or
// when less than a third of the TTL is left, so that other processes get their turn.
//
// Other processes see the label of the first of these holders. A release that hands the lease off asks no server, so if
// the lock was lost, it is the next holder that finds out. A caller that waits for several keys gets its turn when it
// is first for each of them, and the callers behind it wait for it.
//
// Use one Gate per Locker. NewGate on a Gate makes another one in front of the same Locker, and the two know nothing of
// each other.
//
// It is safe for concurrent use.
type Gate struct {
	inner Locker
	block int
	label string // of this process, for holders without one

	mu          sync.Mutex // never taken while a lease's is held
	entries     map[string]*entry
	groups      map[string]*group
	subscribers map[string][]*subscriber // of Watch, by key
	rivals      rivals
}

// entry is the state of a key that a caller holds or waits for.
type entry struct {
	hold  *hold     // of the caller that has the key, or asks the servers for it; nil if there is none
	queue []*waiter // in the order of arrival
}

// NewGate returns a Gate in front of inner, which the caller still owns and must close. It panics if inner is nil.
func NewGate(inner Locker, opts GateOptions) *Gate {
	if inner == nil {
		panic("locking: NewGate needs a Locker")
	}
	if g, ok := inner.(*Gate); ok {
		inner = g.inner // two gates would both hand off the tokens of one block
	}
	handOffs := min(opts.HandOffs, lockwire.MaxBlock-1)
	if handOffs == 0 {
		handOffs = defaultHandOffs
	}
	return &Gate{
		inner: inner, block: max(handOffs, 0) + 1, label: lockwire.CleanLabel(DefaultLabel()),
		entries: map[string]*entry{}, groups: map[string]*group{}, subscribers: map[string][]*subscriber{},
	}
}

// hold is the right of one caller of this process to ask the servers for keys, and then the caller's lease. It is
// handed off with the lease.
type hold struct {
	gate  *Gate
	keys  []string
	label string
	since time.Time
	lease *Lease        // nil while the servers are being asked
	left  int           // how many times it may still be handed off
	ready chan struct{} // closed once the servers have answered
	freed bool

	opts Options // of the attempt
	err  error   // its outcome

	successor *successor // may be nil

	notifyUntil time.Time            // until when callers of this process have subscribed to the release
	subscribed  map[string]time.Time // until when this process has subscribed on the servers, by key
}

// waiter is a caller that waits in the queues of its keys.
type waiter struct {
	keys  []string
	opts  Options
	group *group
	came  time.Time
	turn  chan turn
	busy  bool // it has a turn that it has not ended

	delayed  bool // when it came, it was not first, or its keys were not free
	ahead    bool // it holds other keys, so waiters that hold none come after it
	notified bool // its turn came with the notification of a release
}

// turn is what a waiter waits for: a lease, or a hold with which to ask the servers. If it has neither, the waiter lets
// other processes go first.
type turn struct {
	lease *Lease
	hold  *hold
}

// group is what waiters for the same keys share.
type group struct {
	name     string
	waiters  int
	released <-chan struct{} // a watch of the inner Locker, once a waiter was refused
	stop     func()          // stops the watch
	refused  error           // the last refusal by the servers
	down     time.Time       // since when the servers cannot be reached
	races    int             // lost in a row: notifications that led to a refusal
	yield    bool            // other processes have subscribed, so the first waiter lets them go first
}

// subscriber is a watch of this process.
type subscriber struct{ notify func() }

// lateReleases returns those of the inner Locker, if it reports any.
func (g *Gate) lateReleases() *lateReleases {
	if l, ok := g.inner.(interface{ lateReleases() *lateReleases }); ok {
		return l.lateReleases()
	}
	return new(lateReleases)
}
