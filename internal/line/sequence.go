package line

import (
	_ "embed"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/sequence_join.lua
	sequenceJoinSource string
	//go:embed lua/sequence_remove.lua
	sequenceRemoveSource string

	sequenceJoinScript   = redis.NewScript(composed(sequenceJoinSource))
	sequenceRemoveScript = redis.NewScript(sequenceRemoveSource)
)

const (
	goneBatch = 100  // tasks that are checked at once after one was found to be gone
	goneCalls = 1000 // how many batches one call checks
	frontSize = 2    // how many tasks Remove returns
	soonLooks = 3    // how many of the first tasks get a short timer from Remove
)

// HasFailed reports whether the last run of a task in state retry has failed, by the railtoken:nonce and pending_since of its
// hash: asynq has ended the run that a fetch has named, unless a park has. A number is when the task was enqueued.
func HasFailed(nonce, run string) bool {
	return run != "" && run != nonce && strings.Trim(run, "0123456789") != ""
}

// JoinOptions says how a task joins a sequence. The zero value is a new arrival.
type JoinOptions struct {
	// At is the position that the task had before; when zero, it is a new arrival, at the end. A task that is in the
	// sequence keeps its position.
	At time.Time
	// Strict says that the task keeps its position when it fails. Otherwise it has none until it joins again.
	Strict bool
	// Begins says that the task's run has just begun. If its timer or an operator has brought it back from its key, it
	// is not parked any more, and no wake is meant for it.
	Begins bool
	// Works says that the task begins to work as soon as it is first: if its worker dies then, it has failed.
	Works bool
}

// Position is where a task stands in a sequence.
type Position struct {
	// At is when it joined, by the clock of Redis. No two arrivals have the same At.
	At time.Time
	// Ahead is how many tasks stand before it. When it is zero the task may take the lock, and the fields below are
	// zero. Some of the tasks before it may be gone, but not the first.
	Ahead int
	// First is the first task of the sequence.
	First Task
	// FirstState is its state in asynq's words: active, pending, scheduled, retry or aggregating.
	FirstState string
	// FirstAgain is when asynq runs it again if it is in state retry or scheduled; else zero.
	FirstAgain time.Time
	// FirstAt is when it joined. FirstParked reports that it waits for the key, as far as is known, and FirstFailed that it
	// has failed, keeps its position, and waits for its retry.
	FirstAt                  time.Time
	FirstParked, FirstFailed bool
	// FirstLease is when asynq's lease on it ends if it is active, unless its worker extends it; otherwise zero.
	// FirstLost reports that its worker must have died: asynq has no lease on it, or the lease ended long ago, but not so
	// long ago that asynq's recoverer may be working on it. FirstBegun reports that it had begun to work: see
	// [Engine.BringBack].
	FirstLease            time.Time
	FirstLost, FirstBegun bool
}

// Front is the front of a sequence, whose key a task may have released.
type Front struct {
	// Next are the first tasks that are not gone, two at most.
	Next []Task
	// Parked is how many tasks are parked on the key, by [Engine.Park]. Some may be gone.
	Parked int
	// Lost reports that the first of Next is active on a worker that must have died, and Begun that it had begun to
	// work: see [Engine.BringBack]. Failed reports that it has failed, keeps its position, and waits for its retry, which
	// comes Again.
	Lost, Begun, Failed bool
	Again               time.Time
}

// member is an entry of a sequence, with its score as Redis gives it. Of two entries for one task, made by two enqueues with
// the same ID, the scores differ.
type member struct{ entry, score string }

// members reads the rest of a reply: entries, each with its score.
func (r *reply) members() []member {
	all := make([]member, 0, len(r.rest)/2)
	for len(r.rest) > 0 {
		all = append(all, member{r.text(), r.text()})
	}
	return all
}

// pairsOf returns members as arguments of a script.
func pairsOf(all []member) []any {
	args := make([]any, 0, 2*len(all))
	for _, m := range all {
		args = append(args, m.entry, m.score)
	}
	return args
}
