package simulate

// Variant is a way to get the protocol wrong. Each of them must be caught.
type Variant int

// Variants. All but Correct are known to be wrong.
const (
	Correct            Variant = iota
	IncrementOnly              // the token is the largest of the nodes' own counters, and not written back
	SmallestGranted            // the token is the smallest of the granted counters
	SumOfGranted               // the token is the sum of the granted counters
	ClientClockOnly            // the token is the proposal, and the nodes do not count
	BlindWriteBack             // a commit sets the counter whatever owner has the lock
	OwnerOnlyWriteBack         // a commit sets the counter for the owner, whatever the counter is
	FirstAnswer                // the token is that of the first answer, once the lock is won
	NoGuard                    // a node votes at once after it has lost its data
	OverlappingBlocks          // a grant raises the counter by one, not by the size of its block
	UncheckedValidity          // a lease is trusted until it is released
	AnsweringQuorum            // a quorum is more than half of the nodes that have answered
	MonotonicOnly              // elapsed time is measured without the wall clock
	WallOnly                   // elapsed time is measured without the monotonic clock
	StaleProposals             // an acquisition may be won however long ago its token was proposed
	RetakeLowers               // a retake sets the counter to the token, whatever it is
	RetakeExpired              // a lease whose time is over is taken again, and lives on
	UnmarkedRelease            // a release leaves no mark where it finds nothing, so the acquire may be granted after it
	variants
)

// String returns the variant's name.
func (v Variant) String() string {
	return [variants]string{
		"correct", "increment only", "smallest granted", "sum of granted", "client clock only", "blind write-back",
		"owner-only write-back", "first answer", "no guard", "overlapping blocks", "unchecked validity", "answering quorum",
		"monotonic only", "wall only", "stale proposals", "retake lowers", "retake expired", "unmarked release",
	}[v]
}

// immediate reports whether the variant takes a token without making sure that a quorum holds it.
func (v Variant) immediate() bool {
	switch v {
	case IncrementOnly, SmallestGranted, SumOfGranted, ClientClockOnly, FirstAnswer:
		return true
	default:
		return false
	}
}

// unproven returns the tokens of such a variant.
func (s *simulation) unproven(sl *slot) []int64 {
	tokens := make([]int64, sl.keys)
	for k := range tokens {
		for i := range s.nodes {
			counters := sl.acq.Counters(i)
			if counters == nil {
				continue
			}
			switch c := counters[k]; {
			case s.Variant == SumOfGranted:
				tokens[k] += c
			case s.Variant == ClientClockOnly:
				tokens[k] = sl.top
			case s.Variant == FirstAnswer:
				tokens[k] = sl.first[k]
			case s.Variant == SmallestGranted && tokens[k] != 0:
				tokens[k] = min(tokens[k], c)
			default:
				tokens[k] = max(tokens[k], c)
			}
		}
	}
	return tokens
}
