package node

import (
	"errors"
	"net"
	"slices"
	"time"
)

// deliver gives the answers of a batch to their callers. When the server has not answered, nobody waits for it behind this batch any longer.
func (n *Node) deliver(batch []*Call) {
	n.mu.Lock()
	err := transportError(batch)
	n.note(err)
	if n.opts.Patience > 0 {
		n.health.answered(time.Now(), err)
		n.flying = nil
	}
	answer(batch)
	var away []*Call
	if isTimeout(err) {
		away = n.turnAway(true, err)
	}
	n.mu.Unlock()
	done(batch)
	done(away)
}

// answer marks calls as answered. The caller holds the mutex.
func answer(calls []*Call) {
	for _, c := range calls {
		c.state = answered
		if c.answer != nil {
			close(c.answer)
		}
	}
}

// done tells the callers that do not wait.
func done(calls []*Call) {
	for _, c := range calls {
		if c.answer == nil && c.done != nil {
			c.done(c)
		}
	}
}

// turnAway ends queued calls, of newcomers or all, because of an error. The caller holds the mutex, and calls done without it.
func (n *Node) turnAway(all bool, cause error) (away []*Call) {
	away = n.queue.turnAway(all)
	if len(away) == 0 {
		return nil
	}
	err := notSent(cause)
	for _, c := range away {
		c.Err = err
	}
	answer(away)
	return away
}

// watch looks at the pipeline on its way after a time, unless that is due already. The caller holds the mutex.
func (n *Node) watch(after time.Duration) {
	if !n.watching {
		n.watching = true
		time.AfterFunc(after, n.look)
	}
}

// look tells the callers when the pipeline on its way has had no answer for longer than patience.
func (n *Node) look() {
	n.mu.Lock()
	n.watching = false
	again, err := n.health.look(time.Now(), n.opts.Patience)
	if again > 0 {
		n.watch(again)
	}
	var late, away []*Call
	if err != nil {
		late = append(slices.Clone(n.flying), n.queue.first.rest()...)
		away = n.turnAway(false, err)
	}
	n.mu.Unlock()
	for _, c := range late {
		if c.Late != nil {
			c.Late(c)
		}
	}
	done(away)
}

// transportError returns why a batch had no answer, or nil when the server has answered.
func transportError(batch []*Call) error {
	for _, c := range batch {
		if c.Err == nil || isReply(c.Err) {
			return nil
		}
	}
	return batch[0].Err
}

// isTimeout reports whether an error says that there was no answer in time.
func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}
