package doctor

import (
	"time"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/namespace"
	"github.com/railtoken/railtoken/internal/preflight"
)

// Settings are what the system is meant to keep. The zero value has every default.
type Settings struct {
	TaskCheckInterval time.Duration // 50 ms when zero
	TTL, MaxHold      time.Duration // 30 s and 30 min when zero
	// MaxWait is how long a task may wait for its key before it is reported; 5 min when zero.
	MaxWait time.Duration
	// LongRun is how long a task may keep others from a key or a slot before it is reported; 30 s when zero.
	LongRun time.Duration
	// GuardOff says that lock servers vote at once after a restart.
	GuardOff bool
	// AllowEviction accepts that the Redis of the tasks may evict keys.
	AllowEviction bool
}

// Facts is everything that the checks look at.
type Facts struct {
	lines line.Names
	in    namespace.Namespace // of the tasks

	At       time.Time
	Settings Settings
	Servers  []Server
	Queues   []Queue
	// Servings is how many asynq servers run, by asynq's list.
	Servings int
	// Scripts is how many of the scripts that each server of the supported asynq runs all the time Redis does not know.
	Scripts int
	Keys    []Key
	Waits   []Wait
	// Lost are entries of the index of waiting tasks whose tasks are gone.
	Lost    []delayqueue.Task
	Active  []Active
	Holds   []Hold
	Workers []Worker
	// Held are keys that tasks wait for and that are held, Behind those whose tasks wait for a head that has failed, and Crowds
	// those with a known pace: all among the keys with most waiting tasks.
	Held   []Held
	Behind []Behind
	Crowds []Crowd
	// Full are asynq servers whose slots are all in use.
	Full []Full
	// Unhandled are types of tasks whose last runs found no handler.
	Unhandled []Unhandled
	// Elsewhere are databases of the same Redis that have queues.
	Elsewhere []Database
	// Slots counts waiting and pending tasks by slot of a Redis Cluster; nil elsewhere.
	Slots map[int]Slot
}

// index returns the name in Redis of the set of the waiting tasks of a queue.
func (f *Facts) index(queue string) string { return f.in.In(f.lines.Index(queue)) }

// Server is one Redis process.
type Server struct {
	Addr string
	// Hosts are the addresses of its machine, as far as they are known.
	Hosts []string
	// Tasks and Locks say what is there; Node says that it is one of several lock servers.
	Tasks, Locks, Node bool
	Cluster            bool
	Err                error // why it cannot be asked; nil otherwise
	Refuses            error // why it refuses writes; nil otherwise
	// SpeaksTLS and SpeaksPlain say that it cannot be asked because it does, or does not, expect encrypted connections.
	SpeaksTLS, SpeaksPlain bool
	RunID                  string
	Info                   map[string]string
	Saves                  bool   // it writes snapshots
	Fsync                  string // of its append-only file; empty without one, or if it is not known
	SavesUnknown           bool
	User                   string
	Rules                  preflight.Report
	Encrypted, Local       bool
	Skew                   time.Duration // how far its clock is ahead of this machine's
	RoundTrip              time.Duration // the shortest one
	Refusal                string        // why the guard does not let it vote; empty if it may
}

// Queue is one of asynq's queues.
type Queue struct {
	Name           string
	Paused, Served bool
	Pending        int
	Waiting        int // tasks that wait for keys
	// Taken is how many tasks a move into lanes has taken that it has not put into their lanes.
	Taken int
}

// Key is a key that tasks wait for.
type Key struct {
	Name string
	// Gone are entries among its waiters whose tasks asynq does not know, or has ended.
	Gone []delayqueue.Task
	// Ordered is how many tasks are in its sequence, and Unordered are waiters that are not.
	Ordered   int
	Unordered []delayqueue.Task
}

// Wait is a task that waits for a key.
type Wait struct {
	Task     delayqueue.Task
	Key      string
	Since    time.Time
	Deadline time.Time     // asynq.Deadline; zero for none
	Timeout  time.Duration // asynq.Timeout; 0 if it is not known
	Type     string
}

// Active is a task that runs, by asynq's list.
type Active struct {
	Task    delayqueue.Task
	Type    string
	Keyed   bool // it is known to have keys
	Timeout time.Duration
	// Lease is when asynq's lease on it ends; zero if it has none.
	Lease time.Time
	// Deaths is how many of its runs in a row have ended with their workers.
	Deaths int
}

// Hold is a lock that a worker reports to hold.
type Hold struct {
	Key, Task, Type, Worker string
	Since                   time.Time
	// Remaining is how long the lock lasts without a renewal; negative if it has no end, zero if it is not known.
	Remaining time.Duration
}

// Held is a key that is held while tasks wait for it.
type Held struct {
	Key     string
	Waiting int
	// By is the task that holds it, or the label of its lock if no worker reports the task; Worker is host/PID.
	By, Worker string
	Label      string // of its lock
	Since      time.Time
}

// Behind is a key whose tasks wait in order for one that has failed.
type Behind struct {
	Key     string
	Waiting int
	Head    delayqueue.Task
	LastErr string
	Next    time.Time // when the head runs again
}

// Crowd is a key that many tasks wait for.
type Crowd struct {
	Key     string
	Waiting int
	Ordered bool
	// PerMinute is how often the key was taken in a minute, lately.
	PerMinute float64
}

// Full is an asynq server whose slots are all in use.
type Full struct {
	Name   string // host/PID
	Queues map[string]int
	Slots  int
	// Last is when the last of its tasks began, and Types are those of all.
	Last  time.Time
	Types []string
}

// Unhandled is a type of tasks without a handler.
type Unhandled struct {
	Type  string
	Tasks int
	Task  delayqueue.Task // one of them
}

// Database is one of the databases of a Redis.
type Database struct {
	Addr   string
	Number int
	Here   int // the number of the one that was asked
	// Pending is how many tasks of each queue wait for slots there, and Servers how many asynq servers run there.
	Pending map[string]int
	Servers int
}

// Worker is what a worker reports about itself.
type Worker struct {
	ID, Name    string
	Version     string
	Fingerprint string // of its configuration
	Queues      string // that it serves, sorted
	Store       string // where its locks are
}

// Slot is what is in one slot of a Redis Cluster.
type Slot struct {
	Tasks int
	What  string // the key or queue with most of them
	Most  int
}
