package locking

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/lockwire"
	"github.com/railtoken/railtoken/internal/namespace"
	"github.com/railtoken/railtoken/internal/pipeline"
	"github.com/railtoken/railtoken/internal/quorum"
	"github.com/railtoken/railtoken/internal/restartguard"
	"github.com/railtoken/railtoken/internal/subscription"
)

// Redlock is a [Locker] on several independent Redis masters, its nodes: at least three. The holder of a key has it on
// more than half of them, so a lock outlives the loss of the others ("Distributed Locks with Redis"). Fencing tokens
// grow strictly without consensus, and nearly always without another round trip: see the package documentation.
//
// All nodes are asked concurrently, and an attempt ends as soon as its outcome is certain. The nodes must not replicate
// to each other; an odd number of them works best. It needs Redis 6.2 or later.
//
// It is safe for concurrent use.
type Redlock struct {
	opts       RedlockOptions
	nodes      []*redlockNode
	acquire    *pipeline.Script
	clock      quorum.Clock
	suspension suspensionDetector // of its leases

	retrying pending // grants that repeat releases
	open     pending // grants with unanswered releases
	blocking pending // such grants whose key could stay locked, and attempts
	closing  atomic.Bool
	late     lateReleases
}

// redlockNode is one of the nodes.
type redlockNode struct {
	addr         string
	client       *redis.Client
	calls        *pipeline.Server
	guard        *restartguard.Node
	missing      missing
	subscription *subscription.Subscription
}

// NewRedlock returns a Locker on at least three servers, one for each element of nodes. It makes its own clients, with
// a small pool each, no retries, and NodeTimeout for each answer; Close closes them. Connections are made by the first
// attempt. The error lists all problems with nodes and opts.
//
// The quorum is more than half of the nodes, however many of them are alive. Monitor the servers, because no error
// shows that a minority of them is down or may not vote. go-redis logs failed connections to stderr; see
// redis.SetLogger.
func NewRedlock(nodes []*redis.Options, opts RedlockOptions) (*Redlock, error) {
	if err := errors.Join(opts.Validate(), validateNodes(nodes)); err != nil {
		return nil, err
	}
	opts = opts.withDefaults()
	in, _ := namespace.New(opts.Namespace, opts.Namespace != "") // Validate has checked it
	mode := map[GuardMode]restartguard.Mode{
		GuardConnect: restartguard.Connect, GuardStrict: restartguard.Strict, GuardOff: restartguard.Off,
	}[opts.Guard]
	guards, err := restartguard.New(len(nodes), restartguard.Options{Mode: mode, MaxTTL: opts.MaxTTL})
	if err != nil {
		return nil, err
	}
	r := &Redlock{opts: opts, acquire: acquireScript}
	if opts.Guard == GuardStrict {
		r.acquire = strictAcquireScript
	}
	for i, o := range nodes {
		n := &redlockNode{addr: o.Addr, guard: guards.Node(i), missing: missing{node: i}}
		timeout := opts.pipelineTimeout()
		own := nodeOptions(*o, timeout)
		n.guard.Protect(&own)
		if err := namespace.Wrap(&own, in); err != nil {
			return nil, errors.Join(fmt.Errorf("locking: node %d: %w", i, err), r.Close())
		}
		n.client = redis.NewClient(&own)
		n.calls = pipeline.New(n.client, pipeline.Options{
			Leaders: 1, // as Patience demands; a release waits for the answer to its acquire call
			Timeout: timeout, Patience: opts.NodeTimeout, Blocked: n.guard.Blocked,
		})
		n.subscription = subscription.New(n.client)
		r.nodes = append(r.nodes, n)
	}
	return r, nil
}

// strictAcquireScript checks the server first: see [GuardStrict].
var strictAcquireScript = pipeline.NewScript(restartguard.Script(
	strictCheck + lockwire.Acquire,
)).ForNewcomers()

// strictCheck begins a script that first checks the server, whose identity is the last argument.
const strictCheck = "local other = other_server(table.remove(ARGV))\nif other then\n  return other\nend\n"

// Close ends the watches and the connections. It waits for unanswered releases: for 1.5 s, or NodeTimeout and half a
// second if that is longer, and for 5 s while so many are unanswered that a key could stay locked. It does not wait for
// releases that fail for good, for example because of a wrong password. Afterwards leases can no longer be released, so
// they end with their TTL.
func (r *Redlock) Close() error { return r.closeBy(time.Now().Add(releaseTimeout)) }

func (r *Redlock) closeBy(deadline time.Time) error {
	r.closing.Store(true)
	patience := time.Now().Add(r.opts.pipelineTimeout() + cleanupTimeout/2)
	if patience.After(deadline) {
		patience = deadline
	}
	r.blocking.wait(time.Until(deadline))
	r.open.wait(time.Until(patience))
	var settling sync.WaitGroup
	for _, n := range r.nodes {
		settling.Go(func() { n.calls.Settle(min(r.opts.NodeTimeout, time.Until(patience))) })
	}
	settling.Wait()
	errs := make([]error, len(r.nodes))
	var closing sync.WaitGroup
	for i, n := range r.nodes {
		closing.Go(func() { errs[i] = errors.Join(n.subscription.Close(), n.client.Close()) })
	}
	closing.Wait()
	return errors.Join(errs...)
}

// see keeps later proposals above counters of the nodes.
func (r *Redlock) see(counters ...int64) { see(&r.clock, counters, r.opts.FenceTTL) }

func (r *Redlock) lateReleases() *lateReleases { return &r.late }
