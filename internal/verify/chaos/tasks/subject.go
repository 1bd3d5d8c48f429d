package tasks

import "time"

const (
	// TTL is how long a lock outlives its holder.
	TTL = 3 * time.Second
	// silent is how long a worker has been silent when its tasks are taken back.
	silent = 12 * time.Second
)

// Locks is how handlers lock their keys.
type Locks int

// The kinds of locks.
const (
	None    Locks = iota // plain asynq
	ByHand               // SET NX with a TTL, in the handler
	Ordered              // railtoken, with all strategies and orders
)

// Subject is how tasks are run.
type Subject struct {
	Name   string
	Locks  Locks
	Checks bool // the ledger does
	// Shows, of a control, returns the damage that must be above 0; nil if there must be no damage at all.
	Shows func(Row) []int
}

// Subjects are railtoken and the controls.
var Subjects = []Subject{
	{"railtoken, all strategies", Ordered, true, nil},
	{"control: the ledger checks neither tokens nor tasks", Ordered, false, func(r Row) []int { return []int{r.Twice} }},
	{"control: SET NX in the handler, no tokens", ByHand, false, func(r Row) []int { return []int{r.LostUpdates} }},
	{"control: asynq without locks", None, false, func(r Row) []int { return []int{r.LostUpdates, r.Met, r.Disordered} }},
}
