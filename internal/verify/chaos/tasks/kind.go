package tasks

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/railtoken/railtoken/middleware"
)

// Kind is a type of tasks: its queue, its strategy, and the keys that it shares.
type Kind struct {
	Name     string
	Queue    string
	Strategy middleware.Strategy
	Order    middleware.Order
	Keys     string // the group of its keys: handlers of a key must have one order
	Share    int    // of the tasks, of 20
}

// Kinds are all of them. Those without an order share their keys.
var Kinds = []Kind{
	{"fail", "hasty", middleware.FailFast{Outcome: middleware.Retry}, middleware.BestEffort, "free", 1},
	{"wait", "free", middleware.Wait{Max: 100 * time.Millisecond}.Then(middleware.Requeue{}), middleware.BestEffort, "free", 3},
	{"park", "free", middleware.Requeue{}, middleware.BestEffort, "free", 6},
	{"fifo", "ordered", middleware.Requeue{Order: middleware.FIFO}, middleware.FIFO, "fifo", 5},
	{"strict", "ordered", middleware.Requeue{Order: middleware.StrictFIFO}, middleware.StrictFIFO, "strict", 5},
}

// Queues are those of all kinds, with their priorities.
var Queues = map[string]int{"hasty": 1, "free": 1, "ordered": 1}

// The keys of each group. Together they are 500.
var keys = map[string]int{"free": 300, "fifo": 100, "strict": 100}

// Task is one task.
type Task struct {
	Number   int
	Kind     int // in Kinds
	Key      string
	Recorded bool // its producer records its key
	Slow     bool // it works for longer than a lease lasts without a renewal
	Fails    bool // its first run fails
}

// Tasks returns so many tasks. Few keys are those of many tasks: the hottest of 300 is that of one in fifteen.
func Tasks(random *rand.Rand, n int) []Task {
	var shares []int // Kinds by their shares
	for kind, k := range Kinds {
		for range k.Share {
			shares = append(shares, kind)
		}
	}
	skewed := map[string]*rand.Zipf{}
	for group, n := range keys {
		skewed[group] = rand.NewZipf(random, 1.1, 4, uint64(n-1)) //nolint:gosec // it is small
	}
	all := make([]Task, n)
	for i := range all {
		kind := shares[random.IntN(len(shares))]
		group := Kinds[kind].Keys
		all[i] = Task{
			Number: i, Kind: kind, Key: fmt.Sprintf("%s:%d", group, skewed[group].Uint64()), Recorded: random.IntN(2) == 0,
			Slow: random.IntN(1000) == 0, Fails: random.IntN(500) == 0,
		}
	}
	return all
}
