package explain

import (
	"time"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// facts is what is known of a task and of everything that it may wait for, at one moment.
type facts struct {
	now  time.Time
	task delayqueue.Task

	state    string // in asynq's words; empty if asynq knows no such task
	taskType string
	due      time.Time // when asynq runs it again, in state retry or scheduled
	lease    time.Time // the end of asynq's lease on it, in state active
	deadline time.Time // its asynq.Deadline
	retried  int
	most     int // retries
	lastErr  string
	failedAt time.Time
	pending  int // how many tasks are before it in its queue, in state pending

	paused   bool
	unserved bool            // no server works on its queue
	served   map[string]bool // the queues that servers work on

	// key is the key that it waits for; empty if that is not known. position counts from 1 among its waiters; 0 if it is
	// not among them.
	key        string
	others     []string // further keys that it waits for: a task of items
	keys       []string // of the task, as far as they are known
	position   int
	waiters    int
	conflicts  int
	first      time.Time // its first refusal
	supersedes string    // the group whose tasks it supersedes; empty if none
	deaths     int       // how many of its runs in a row have ended with their workers
	cancelled  string    // by whom and why, if it is to end when its run ends
	putBack    bool      // its last run has not failed, but was to run again
	postponed  bool      // its last run ended because lock servers could not be reached

	sequence place // in the sequence of the key; zero if it is in none

	holder    *locking.Holder           // of the key; nil if it is free or not known
	by        delayqueue.Task           // the task that holds the key; zero if it is not known
	silent    time.Duration             // since when the worker of the holder was not heard of; 0 if it was of late
	unseen    string                    // the store of the holder's lock, or else of locks of any worker, if not on Redis
	process   string                    // of the holder: host/PID; empty if it is not known
	elsewhere bool                      // the holder's lock is in the store unseen
	votes     votes                     // of the lock servers
	refuses   error                     // why the Redis of the tasks refuses writes; nil if it does not
	holds     bool                      // the task itself holds a key
	runner    string                    // host/PID of the process that runs the task; empty if it is not known
	refused   *middleware.ConflictError // why it was archived; nil for another reason
}

// place is the place of a task in a sequence.
type place struct {
	position int // from 1; 0 if it is in no sequence
	first    delayqueue.Task
	state    string // of the first task
	failed   bool   // the first task has failed, and is retried when it is due
	paused   bool   // its queue is paused, or no server works on it
	unserved bool
	due      time.Time
	lastErr  string
}

// delayed reports whether the task waits in one of asynq's sets with a timer.
func (f *facts) delayed() bool { return f.state == "retry" || f.state == "scheduled" }

// over reports whether the task does not run any more by itself.
func (f *facts) over() bool { return f.state == "archived" || f.state == "completed" }

// votes is what the lock servers answer. The zero value is that of locks on the Redis of the tasks.
type votes struct {
	servers     int
	reached     int // those that answer
	may         int // those that may vote
	refusals    []string
	quarantined time.Time // when enough servers may vote again; zero if that is not known
}

// quorum reports whether n servers are enough.
func (v votes) quorum(n int) bool { return v.servers == 0 || n > v.servers/2 }
