package locking

import (
	"errors"
	"time"

	"github.com/railtoken/railtoken/internal/pipeline"
	"github.com/railtoken/railtoken/internal/quorum"
	"github.com/railtoken/railtoken/internal/restartguard"
)

// ask sends the acquire call to node i. The caller holds the mutex.
func (g *redlockGrant) ask(i int, call *pipeline.Call) {
	n, request := g.redlock.nodes[i], g.acquireCall
	if !g.takeOver.Empty() {
		request = g.takeOver
	}
	if g.redlock.opts.Guard == GuardStrict {
		g.nodes[i].sent = time.Now()
		request = request.With(n.guard.Identity()) // the last argument
	}
	call.Of(request, i, g.onAnswer).Late = g.onLate
	if err := n.calls.Send(call); err != nil {
		g.fail(i, err)
		return
	}
	g.nodes[i].asked = true
}

// fail records that node i will not answer. The caller holds the mutex.
func (g *redlockGrant) fail(i int, err error) {
	g.nodes[i].answered = true
	g.nodes[i].failure = err
	g.rules.Failed(i)
	g.failed(i)
}

// handleLate records that a node has not answered the acquire call, or an earlier one, within NodeTimeout. The answer
// may still come.
func (g *redlockGrant) handleLate(c *pipeline.Call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := &g.nodes[c.Node]; !n.answered {
		n.failure = errNodeTimeout
		g.rules.Failed(c.Node)
		g.settle()
	}
}

// withdraw withdraws the acquire calls that are still queued, so that nothing of them reaches the nodes. The caller
// holds the mutex.
func (g *redlockGrant) withdraw() {
	for i := range g.nodes {
		n := &g.nodes[i]
		if n.asked && !n.answered && !n.retried && g.redlock.nodes[i].calls.Withdraw(&g.calls[i]) {
			n.answered, n.outcome = true, unsent
			g.rules.Failed(i)
		}
	}
}

// errAskedAgain means that the call was sent again.
var errAskedAgain = errors.New("another server has answered")

// parse reads the answer to an acquire call, as parseAcquire does. The caller holds the mutex.
func (g *redlockGrant) parse(c *pipeline.Call) (tops []int64, held *HeldError, value string, err error) {
	if c.Err != nil {
		return nil, nil, "", c.Err
	}
	if g.redlock.opts.Guard == GuardStrict {
		again, err := g.otherServer(c.Node, c.Reply)
		switch {
		case again:
			return nil, nil, "", errAskedAgain
		case err != nil:
			return nil, nil, "", err
		}
	}
	return parseAcquire(c.Reply, g.keys)
}

// otherServer checks whether the strict script has run in the server that was vetted. If it has run in another server
// that may vote, otherServer sends the call again and returns true.
func (g *redlockGrant) otherServer(i int, reply any) (again bool, err error) {
	n := g.redlock.nodes[i]
	facts, other, err := restartguard.ParseReply(reply, g.nodes[i].sent, time.Now())
	if !other {
		return false, nil
	}
	if err == nil {
		err = n.guard.Reject(facts)
	}
	if err != nil {
		return false, err
	}
	if g.nodes[i].retried || g.ended {
		return false, errors.New("the server changes again and again")
	}
	g.nodes[i].retried = true
	g.ask(i, &pipeline.Call{})
	if g.nodes[i].answered {
		return false, g.nodes[i].failure
	}
	return true, nil
}

// settle lets acquire return once the verdict is certain. The caller holds the mutex.
func (g *redlockGrant) settle() {
	if g.rules.Verdict() == quorum.Undecided {
		return
	}
	select {
	case <-g.settled:
	default:
		close(g.settled)
	}
}

// giveUp counts the nodes that have not answered yet as failed.
func (g *redlockGrant) giveUp(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range g.nodes {
		if g.rules.Silent(i) {
			g.nodes[i].failure = err
			g.rules.Failed(i)
		}
	}
	g.settle()
}
