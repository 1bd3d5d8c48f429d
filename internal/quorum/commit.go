package quorum

import "slices"

// Step is the next step of a commit.
type Step struct {
	Tokens []int64 // the last token of each key's block: committed if Done, otherwise for the nodes in Renew
	Done   bool    // a quorum holds Tokens
	Lost   bool    // no quorum is left, because nodes have another owner or have lost the lock
	Renew  []int   // nodes to renew
}

// Commit returns the next step to make the tokens of a lock that is Won certain. Usually a quorum has granted the same
// counters, and nothing is left to do. Otherwise the largest counter becomes the token, and nodes with smaller ones are
// renewed to it: the caller calls Renewing for each node of Renew, then Renewed or RenewFailed with the outcome, and
// Commit again after each.
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

// largest returns, for each key, the largest counter that a node has granted.
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

// Counters returns the fence counter of each key on node i, or nil if the node is not known to have granted.
func (a *Acquisition) Counters(i int) []int64 {
	if a.nodes[i].answer != granted {
		return nil
	}
	return a.nodes[i].tops
}

// Elsewhere reports whether node i is known to have another owner, or to have lost this owner's lock.
func (a *Acquisition) Elsewhere(i int) bool {
	return a.nodes[i].answer == held || a.nodes[i].answer == lost
}

// Renewing records that a renewal is under way to node i.
func (a *Acquisition) Renewing(i int) { a.nodes[i].renewal = true }

// Renewed records that node i was renewed to the tokens, or, if ok is false, that it has lost the lock.
func (a *Acquisition) Renewed(i int, tokens []int64, ok bool) {
	n := &a.nodes[i]
	n.renewal = false
	switch {
	case !ok:
		// A node whose grant is not known yet gives the same answer. That is no loss: the grant may still come.
		if n.answer == granted {
			n.answer = lost
		}
	case n.answer == granted || n.answer == none || n.answer == failed:
		n.answer, n.tops = granted, tokens
	}
}

// Retaken records that node i, which had lost the lock or had another owner, has granted it again with these counters.
// The tokens must be committed by then, because such a grant is not part of a commit.
func (a *Acquisition) Retaken(i int, tops []int64) {
	a.nodes[i].answer, a.nodes[i].tops = granted, tops
}

// RenewFailed records an unanswered renewal.
func (a *Acquisition) RenewFailed(i int) { a.nodes[i].renewal = false }
