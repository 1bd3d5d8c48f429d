package restartguard

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// Mode is how a [Guard] vets a server.
type Mode int

// The modes of a [Guard].
const (
	// Connect vets every new connection.
	Connect Mode = iota
	// Off refuses only a server that is also another node of the Redlock, if the server reports its run_id.
	Off
	// Strict does what Connect does, and lock scripts compare [Node.Identity] inside the server on every call.
	Strict
)

// Options configures a [Guard].
type Options struct {
	// Mode is [Connect] when zero.
	Mode Mode

	// MaxTTL is the longest TTL that any client of the Redlock uses. It is required, except with [Off].
	MaxTTL time.Duration

	// MaxSkew is how far a server's wall clock may be from this machine's; MaxTTL/4 when zero. So the clocks of two
	// clients agree within twice MaxSkew.
	MaxSkew time.Duration
}

// Validate returns all faults of the options in one error, or nil.
func (o Options) Validate() error {
	var errs []error
	if o.Mode < Connect || o.Mode > Strict {
		errs = append(errs, fmt.Errorf("locking: there is no guard mode %d", o.Mode))
	}
	if o.MaxTTL < 0 || o.MaxTTL == 0 && o.Mode != Off {
		errs = append(errs, fmt.Errorf("locking: MaxTTL is %v: it must be the longest TTL in use", o.MaxTTL))
	}
	if o.MaxSkew < 0 {
		errs = append(errs, fmt.Errorf("locking: MaxSkew is %v: it must not be negative", o.MaxSkew))
	}
	return errors.Join(errs...)
}

// Guard vets the servers of one Redlock, and knows which process serves which node. It starts no goroutines and need
// not be closed. It is safe for concurrent use.
type Guard struct {
	mode   Mode
	limits Limits
	nodes  []*Node

	mu    sync.Mutex
	known []Known // what is known of each node
}

// New returns a Guard for a Redlock of n nodes.
func New(n int, opts Options) (*Guard, error) {
	if n < 1 {
		return nil, fmt.Errorf("locking: a guard for %d nodes: there must be at least 1", n)
	}
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	g := &Guard{
		mode:   opts.Mode,
		limits: Limits{MaxTTL: opts.MaxTTL, MaxSkew: opts.MaxSkew},
		nodes:  make([]*Node, n),
		known:  make([]Known, n),
	}
	if g.limits.MaxSkew == 0 {
		g.limits.MaxSkew = opts.MaxTTL / 4
	}
	for i := range g.nodes {
		g.nodes[i] = &Node{guard: g, index: i}
	}
	return g, nil
}

// Node returns the node at position i, counted from 0. It panics if there is none.
func (g *Guard) Node(i int) *Node { return g.nodes[i] }

// vet decides on a node and records its facts in one step, so that of two nodes that are the same server one is
// refused.
func (g *Guard) vet(i int, f Facts, now time.Time) *RefusedError {
	g.mu.Lock()
	defer g.mu.Unlock()
	others := make([]string, 0, len(g.known))
	for j := range g.known {
		if j != i {
			others = append(others, g.known[j].RunID)
		}
	}
	var refusal *RefusedError
	if g.mode != Off {
		g.known[i], refusal = Vet(f, g.limits, g.known[i], others, now)
	} else if refusal = vetDuplicate(f, others, now); refusal == nil {
		g.known[i].RunID = f.RunID
	}
	return refusal
}
