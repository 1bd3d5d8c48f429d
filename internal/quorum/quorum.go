// Package quorum decides, from the answers of independent nodes, whether a lock is acquired and what its fencing token
// is (docs/design.md, 3.3, 3.4 and 3.7). It does no I/O and has no clock: a Redlock passes it the answers of servers,
// and the simulator those of simulated servers.
package quorum

// Verdict is what is known about an acquisition.
type Verdict int

// Verdicts. All but Undecided are final.
const (
	Undecided   Verdict = iota // further answers can decide either way
	Won                        // a quorum has granted
	Held                       // a quorum is impossible, because another owner has the lock
	Split                      // a quorum is impossible, because several owners each have some of the nodes
	Unreachable                // a quorum is impossible for every owner, because too many nodes have failed
)

// String returns the verdict's name.
func (v Verdict) String() string {
	return [...]string{"undecided", "won", "held", "split", "unreachable"}[v]
}

// Of returns the quorum of a number of nodes: more than half of them, however many are alive.
func Of(nodes int) int { return nodes/2 + 1 }

// answer is the answer of one node.
type answer int

const (
	none answer = iota
	granted
	held
	failed
	lost // granted, but no longer ours
)

// node is what an acquisition knows about one node.
type node struct {
	answer  answer
	tops    []int64 // if granted: the fence counter of each key, which is the last token of its block
	owner   string  // if held: the other owner
	renewal bool    // a renewal to the commit's tokens is under way
}

// Acquisition is one owner's attempt on all nodes, and later the commit of its tokens. It is not safe for concurrent
// use.
type Acquisition struct {
	quorum  int
	nodes   []node
	verdict Verdict
	tokens  []int64 // committed, or nil
}

// New returns an acquisition that no node has answered yet.
func New(nodes int) *Acquisition {
	return &Acquisition{quorum: Of(nodes), nodes: make([]node, nodes)}
}

// Granted records that node i has granted the lock, with its fence counter of each key.
func (a *Acquisition) Granted(i int, tops []int64) {
	if a.nodes[i].answer == none || a.nodes[i].answer == failed { // a late answer corrects a time-out
		a.nodes[i].answer, a.nodes[i].tops = granted, tops
		a.decide()
	}
}

// Held records that on node i another owner has the lock.
func (a *Acquisition) Held(i int, owner string) {
	if a.nodes[i].answer == none || a.nodes[i].answer == failed {
		a.nodes[i].answer, a.nodes[i].owner = held, owner
		a.decide()
	}
}

// Failed records that node i has not answered, or has answered with an error, so that it may have granted or not.
func (a *Acquisition) Failed(i int) {
	if a.nodes[i].answer == none {
		a.nodes[i].answer = failed
		a.decide()
	}
}

// Verdict returns what is known so far. Once it is not Undecided, it does not change.
func (a *Acquisition) Verdict() Verdict { return a.verdict }

// Silent reports whether node i has not answered.
func (a *Acquisition) Silent(i int) bool { return a.nodes[i].answer == none }

// count returns how many nodes have given an answer.
func (a *Acquisition) count(which answer) (n int) {
	for _, node := range a.nodes {
		if node.answer == which {
			n++
		}
	}
	return n
}

// decide sets the verdict as soon as it is certain, without waiting for silent nodes: once a quorum has granted, or is
// impossible. If nodes have failed, it waits for those that decide whether any owner can have a quorum, because a
// refused caller must not mistake an outage for a holder.
func (a *Acquisition) decide() {
	yes, silent, down := a.count(granted), a.count(none), a.count(failed)
	spare := len(a.nodes) - a.quorum // how many nodes may fail
	switch {
	case a.verdict != Undecided:
	case yes >= a.quorum:
		a.verdict = Won
	case yes+silent >= a.quorum:
	case down > spare:
		a.verdict = Unreachable
	case a.mostOfOneOwner() >= a.quorum:
		a.verdict = Held
	case down > 0 && down+silent > spare:
	case a.oneOwner() && yes == 0:
		a.verdict = Held
	default:
		a.verdict = Split
	}
}

// oneOwner reports whether all the refusals so far name the same owner.
func (a *Acquisition) oneOwner() bool { return a.mostOfOneOwner() == a.count(held) }

// mostOfOneOwner returns the largest number of nodes that one other owner has.
func (a *Acquisition) mostOfOneOwner() (most int) {
	for i := range a.nodes {
		n := 0
		for j := range a.nodes {
			if a.nodes[j].answer == held && a.nodes[j].owner == a.nodes[i].owner {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}
