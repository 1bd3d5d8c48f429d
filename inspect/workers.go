package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/holdings"
)

// Worker is the last report of a worker. Workers report every 5 s, and a report is kept for 15 s, so a killed worker
// stays listed for up to 15 s.
type Worker struct {
	ID   string
	Host string
	PID  int
	// Version is the version of railtoken; empty if unknown. Config is a fingerprint: workers with the same settings
	// have the same one.
	Version, Config string
	// Backend says where the locks of its tasks are: redis, redlock, or the name of the package that implements the
	// Locker; empty if the worker is too old to report it. An [Inspector] sees locks of the first two only.
	Backend string
	// Store identifies the place where the locks are: workers with different ones do not exclude each other. Empty if the
	// worker is too old to report it or has not reached its lock servers, or if its Locker does not tell: see
	// backend.Identified.
	Store string
	// Since is when the worker began, and Seen when it reported, by its own clock.
	Since, Seen time.Time
	// Queues are those that the worker serves, with their priorities.
	Queues map[string]int
	// Lanes is how many lanes its queues have: 0 for none.
	Lanes int
	// Slots is its Concurrency. Running is how many slots are in use, and Waiting is how many of these are occupied by
	// a task that waits for a key.
	Slots, Running, Waiting int
	// Conflicts is how many tasks were refused a key since the worker began.
	Conflicts int64
	// Keys is how many keys its tasks hold. Held has the oldest of them, at most 1000, oldest first.
	Keys int
	Held []Holding
}

// Mode says what holds a key.
type Mode string

// The modes.
const (
	ModeTask Mode = holdings.ModeTask // the run of a task
	ModeItem Mode = holdings.ModeItem // an item of a task: see package items
)

// Holding is a key that a task holds, as its worker has reported it.
type Holding struct {
	Key   string
	Task  delayqueue.Task
	Type  string
	Since time.Time // when its handler began
	Fence int64     // its token; 0 while that is not certain
	Mode  Mode
	// Worker is the ID of the worker, and Host and PID are those of its process.
	Worker string
	Host   string
	PID    int
	// Seen is when the worker reported.
	Seen time.Time
}

// Workers returns the reports of all workers, ordered by host, PID and ID: at most 1000, the ones that reported last.
// It makes two calls to the Redis of the tasks. Workers with DisableReports are missing.
func (i *Inspector) Workers(ctx context.Context) ([]Worker, error) {
	reports, err := holdings.Read(ctx, i.opts.Tasks)
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	var workers []Worker
	for _, r := range reports {
		workers = append(workers, workerOf(r))
	}
	slices.SortFunc(workers, func(a, b Worker) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.PID, b.PID), cmp.Compare(a.ID, b.ID))
	})
	return workers, nil
}

// workerOf returns the worker of a report.
func workerOf(r holdings.Report) Worker {
	w := Worker{
		ID: r.ID, Host: r.Host, PID: r.PID, Version: r.Version, Config: r.Config, Backend: r.Backend, Store: r.Store,
		Since: time.UnixMilli(r.Since), Seen: r.Seen, Queues: r.Queues, Lanes: r.Lanes, Slots: r.Slots, Running: r.Running, Waiting: r.Waiting, Conflicts: r.Conflicts,
		Keys: r.Keys,
	}
	for _, h := range r.Held {
		w.Held = append(w.Held, Holding{
			Key: string(h.Key), Task: delayqueue.Task{Queue: h.Queue, ID: h.ID}, Type: h.Type,
			Since: time.UnixMilli(h.Since), Fence: h.Fence, Mode: Mode(h.Mode), Worker: r.ID, Host: r.Host, PID: r.PID,
			Seen: r.Seen,
		})
	}
	return w
}
