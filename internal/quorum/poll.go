package quorum

// Poll counts the answers of the nodes to a renewal or a release.
type Poll struct {
	nodes, yes, no, failed int
}

// NewPoll returns a poll that no node has answered yet.
func NewPoll(nodes int) Poll { return Poll{nodes: nodes} }

// Yes records that a node has done what was asked.
func (p *Poll) Yes() { p.yes++ }

// No records that another owner has the lock on a node, or has had it since.
func (p *Poll) No() { p.no++ }

// Failed records that a node has not answered, or has answered with an error.
func (p *Poll) Failed() { p.failed++ }

// Answered returns how many nodes have been counted.
func (p *Poll) Answered() int { return p.yes + p.no + p.failed }

// Outcome is the result of a poll.
type Outcome int

// Outcomes. All but Open are final.
const (
	Open    Outcome = iota // further answers can decide either way
	Done                   // a quorum has done what was asked
	Lost                   // too many nodes have said no for a quorum
	Unknown                // too many nodes have not answered
)

// String returns the outcome's name.
func (o Outcome) String() string { return [...]string{"open", "done", "lost", "unknown"}[o] }

// Outcome returns the result of the poll as soon as it is certain.
func (p *Poll) Outcome() Outcome {
	quorum := Of(p.nodes)
	silent := p.nodes - p.Answered()
	switch {
	case p.yes >= quorum:
		return Done
	case p.no > p.nodes-quorum:
		return Lost
	case p.yes+silent >= quorum, p.no+silent > p.nodes-quorum:
		return Open
	default:
		return Unknown
	}
}
