// Package holdings lets workers say what they hold, without a cost per lock: each of them keeps the holdings of its tasks
// in memory ([Set]) and writes them to the Redis of the tasks every 5 s ([Reporter]). Package inspect reads them.
package holdings

import "encoding/json"

// The names of the reports in Redis. Workers is a sorted set of the IDs of workers, with the times of their last
// signs of life (ms), which come with their reports.
const (
	Workers = "railtoken:workers"
	prefix  = "railtoken:worker:"
)

// Key returns the name of a worker's report.
func Key(id string) string { return prefix + id }

// The modes of a [Held].
const (
	ModeTask = "task"
	ModeItem = "item"
)

// Worker is the report of one worker, as Redis keeps it. Times are in ms since 1970.
type Worker struct {
	Host    string         `json:"host"`
	PID     int            `json:"pid"`
	Version string         `json:"version,omitempty"` // of railtoken
	Config  string         `json:"config,omitempty"`  // fingerprint of the configuration
	Backend string         `json:"backend,omitempty"` // of the locks: redis, redlock, or the name of a package
	Store   string         `json:"store,omitempty"`   // where the locks are: see lockaccess.Access
	Since   int64          `json:"since"`
	Seen    int64          `json:"seen,omitempty"` // when the report was written
	Queues  map[string]int `json:"queues,omitempty"`
	Lanes   int            `json:"lanes,omitempty"` // of the queues; 0 for none
	Slots   int            `json:"slots"`
	Running int            `json:"running"` // slots in use
	Waiting int            `json:"waiting"` // slots in which tasks wait for a key
	// Conflicts is how many tasks were refused a key since the worker began.
	Conflicts int64  `json:"conflicts"`
	Keys      int    `json:"keys"` // that are held; more than Held has at most
	Held      []Held `json:"held,omitempty"`
}

// Held is a key that a task holds. Key has any bytes, so JSON has it in base64.
type Held struct {
	Key   []byte `json:"key"`
	Queue string `json:"queue"`
	ID    string `json:"task"`
	Type  string `json:"type"`
	Since int64  `json:"since"`
	Fence int64  `json:"fence,omitempty"`
	Mode  string `json:"mode"`
}

// Parse reads a report.
func Parse(text string) (w Worker, err error) {
	err = json.Unmarshal([]byte(text), &w)
	return w, err
}

// OnRedis reports whether the locks of a [Worker] with this Backend are on Redis, where package inspect sees them. A
// worker of an earlier release names no backend.
func OnRedis(backend string) bool { return backend == "" || backend == "redis" || backend == "redlock" }
