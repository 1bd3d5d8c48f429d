package quorum

import "slices"

// Step is what a commit needs next.
type Step struct {
	Tokens []int64 // of each key, the last one of its block: committed if Done, else for the nodes in Renew
	Done   bool    // a quorum holds Tokens
	Lost   bool    // so many nodes have another owner, or have lost the lock, that no quorum is left
	Renew  []int   // nodes to send the renewal to
}

// Commit returns the next step of making the tokens of a lock that is Won certain. In the normal case, when a quorum
// has granted the same counters, there is nothing to send. Else the largest counter is the token, and the nodes that
// lag behind are renewed to it: the caller marks each node of Renew by Renewing, reports the outcome by Renewed or
// RenewFailed, and calls Commit again after each.
//
// Once committed, the tokens do not change.
func (a *Acquisition) Commit() Step {
	if a.tokens != nil {
		return Step{Tokens: a.tokens, Done: true}
	}
	if a.count(lost)+a.count(held) > len(a.nodes)-a.quorum {
		return Step{Lost: true}
	}
	step := Step{Tokens: a.largest()}
	same := 0
	for i, n := range a.nodes {
		switch {
		case n.answer != granted:
		case slices.Equal(n.tops, step.Tokens):
			same++
		case !n.renewal:
			step.Renew = append(step.Renew, i)
		}
	}
	if same >= a.quorum {
		a.tokens = step.Tokens
		return Step{Tokens: a.tokens, Done: true}
	}
	return step
}

// largest returns the largest counter of each key that a node has granted.
func (a *Acquisition) largest() []int64 {
	var tokens []int64
	for _, n := range a.nodes {
		if n.answer != granted {
			continue
		}
		if tokens == nil {
			tokens = slices.Clone(n.tops)
		}
		for k, top := range n.tops {
			tokens[k] = max(tokens[k], top)
		}
	}
	return tokens
}

// Counters returns the fence counter of each key on node i, nil when it is not known to have granted.
func (a *Acquisition) Counters(i int) []int64 {
	if a.nodes[i].answer != granted {
		return nil
	}
	return a.nodes[i].tops
}

// Elsewhere reports whether node i is known to have the lock for another owner, or no longer for this one.
func (a *Acquisition) Elsewhere(i int) bool {
	return a.nodes[i].answer == held || a.nodes[i].answer == lost
}

// Renewing records that a renewal is under way to node i.
func (a *Acquisition) Renewing(i int) { a.nodes[i].renewal = true }

// Renewed records that node i was set to the tokens, or, when ok is false, that the lock is lost there.
func (a *Acquisition) Renewed(i int, tokens []int64, ok bool) {
	n := &a.nodes[i]
	n.renewal = false
	switch {
	case !ok:
		// A node whose grant is not known yet says so too; that is no loss, and the grant may still come.
		if n.answer == granted {
			n.answer = lost
		}
	case n.answer == granted || n.answer == none || n.answer == failed:
		n.answer, n.tops = granted, tokens
	}
}

// Retaken records that node i, which had lost the lock or had it for another owner, has granted it again with these
// counters. It may be asked only when the tokens are committed: such a grant is no part of a commit.
func (a *Acquisition) Retaken(i int, tops []int64) {
	a.nodes[i].answer, a.nodes[i].tops = granted, tops
}

// RenewFailed records an unanswered renewal.
func (a *Acquisition) RenewFailed(i int) { a.nodes[i].renewal = false }
