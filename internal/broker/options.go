package broker

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/railtoken/railtoken/internal/broker/intake"
	"github.com/railtoken/railtoken/internal/colocated"
	"github.com/railtoken/railtoken/internal/ends"
	"github.com/railtoken/railtoken/internal/lanes"
)

// Options configures a [Conn].
type Options struct {
	// Interval is the longest pause of an idle server between two checks of its queues.
	Interval time.Duration
	// Queues are those of the server with their priorities, Strict is its StrictPriority, and Slots its Concurrency.
	Queues map[string]int
	Strict bool
	Slots  int
	// Lanes have further queues of the server, one in each lane for each of Queues. They require a Redis Cluster, and at most [MostQueues].
	Lanes lanes.Lanes
	// Owed returns the key of what is owed in a lane, for [Conn.MayOwe]. When nil, there is none.
	Owed func(lane int) string
	// Background runs a call until Redis has answered it, for at most limit; it reports false when the process is
	// ending. When nil, each call has a goroutine of its own.
	Background func(limit time.Duration, do func(context.Context)) bool
	// Stopping, once it is closed, ends every pause: close it when the server begins to shut down. Nil never ends one.
	Stopping <-chan struct{}
	// Wakes ends a pause when a task is ready; the servers of a process share it. Nil never ends one.
	Wakes Wakes
	// Tasks learns of the tasks of the server, and answers their acknowledgements. When nil, every script is asynq's
	// own.
	Tasks Tasks
	// Marks says that ends of tasks are marked: see Tasks.Ending.
	Marks bool
	// Locks are taken with the tasks of some Types, and released with their acknowledgements, if they are on the Redis of
	// the tasks.
	Locks colocated.Locks
	Types *colocated.Types
	// KeysIn returns the keys of a task by its message, encoded as they are recorded; "" if they are not known before its run.
	KeysIn func(message string) string
	// Parking has tasks parked by the script that would fetch them. When nil, Tasks is asked about all that were refused.
	Parking *Parking
	// Worker returns the name of the worker that may be in the names of the runs that begin now: others may take them back once it is
	// silent. It is "" if they may not, as when nil.
	Worker func() string
	// Beside is looked at by the looks of the server while it is idle, unless the client has several nodes.
	Beside Beside
	// Foreign is set once a script of an asynq is seen that is not recognised: see [Recognise]. The servers of a process
	// share it; when nil, the Conn has its own. From then on the server fetches no task, unless Plain is set. With Plain
	// asynq fetches by its own script, and Tasks learns of no new runs.
	Foreign *atomic.Bool
	Plain   bool
	// Logger receives an error or a warning then; nil disables it.
	Logger *slog.Logger
	// Ready, when not nil, is called before each fetch. When it returns an error, the fetch fails with it: asynq logs
	// it, and the server fetches no task.
	Ready func(context.Context) error
}

// MostQueues is how many Queues a server with Lanes may have.
const MostQueues = intake.MostQueues

// CheckInterval is the TaskCheckInterval that an asynq server must have behind a [Conn]: asynq's own pause between two
// checks for tasks. The Conn makes the real pause.
const CheckInterval = time.Millisecond

// Beside is another key that some looks of an idle server are for, too, so that it takes no command of its own.
type Beside struct {
	Key  string      // none when empty
	Due  func() bool // reports whether the next look is for it
	None func()      // is called when a look has found that the key does not exist
}

// Tasks learns of the tasks that an asynq server fetches, and answers their acknowledgements.
type Tasks interface {
	intake.Tasks
	// Acknowledge is called before an acknowledgement is sent. When answered is true, asynq's script is not sent, and
	// asynq gets err. Otherwise ended, unless it is nil, is called once the run has ended in Redis, as far as is known.
	Acknowledge(ctx context.Context, a Acknowledgement) (answered bool, ended func(), err error)
	// Release returns what is left of a task's locks once its run ends, nil for nothing. It is called before Acknowledge.
	// lost lets the task run again, for which a Release that is Strict has found that a lock was lost.
	Release(a Acknowledgement) (r *colocated.Release, lost func())
	// Ending returns the mark of a task that is about to end for good, nil for none. It is called before Acknowledge.
	Ending(a Acknowledgement) *ends.Ending
}

// Fetched is a task that was fetched.
type Fetched = intake.Task

// Parking has tasks parked by the script that fetches them.
type Parking = intake.Parking

// Parked are tasks that were parked so.
type Parked = intake.Parked

// Acknowledgement is what asynq does with a task whose run has ended.
type Acknowledgement struct {
	// Script is asynq's name for it: done, doneUnique, markAsComplete, markAsCompleteUnique, requeue, retry or archive.
	// With an unsupported version of asynq it is requeue or empty.
	Script    string
	Queue, ID string
	// Run is the run that ends, "" if it is not known.
	Run string
	// Counted reports that asynq would raise its retry count, because the run has failed.
	Counted bool
	// Repeated reports that asynq has sent the acknowledgement before, and has not heard of its success: the task may
	// have begun another run since.
	Repeated bool
	// Message is asynq's message of the task, if it writes one, and ArchivedAt when the task is archived (s), if it is.
	Message, ArchivedAt string
}

// Ends reports whether the task ends for good.
func (a Acknowledgement) Ends() bool { return a.Archives() || a.Completes() }

// Archives reports whether asynq archives the task.
func (a Acknowledgement) Archives() bool { return a.Script == "archive" }

// Completes reports whether asynq takes the task for done; also if its handler has revoked it.
func (a Acknowledgement) Completes() bool {
	return strings.HasPrefix(a.Script, doneScript) || strings.HasPrefix(a.Script, "mark")
}

// Requeues reports whether asynq puts the task back because the server shuts down.
func (a Acknowledgement) Requeues() bool { return a.Script == "requeue" }
