package intake

import (
	"context"
	_ "embed"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/colocated"
	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/lockwire"
	"github.com/railtoken/railtoken/internal/pipeline"
	"github.com/railtoken/railtoken/internal/rediswire"
)

var (
	//go:embed lua/grant.lua
	grantSource string
	//go:embed lua/fetch.lua
	fetchSource string
	//go:embed lua/recall.lua
	recallSource string
	//go:embed lua/ack.lua
	ackSource string
	//go:embed lua/done.lua
	doneSource string
	//go:embed lua/give_back.lua
	giveBackSource string

	giveBackScript = pipeline.NewScript(lockwire.Script(rediswire.Compose(lanes.Functions, giveBackSource)))
)

const (
	// lease is asynq's own: how long a task is active before it is taken for one of a dead worker.
	lease = 30 * time.Second
	// unclaimed is how long a task may lie in memory.
	unclaimed = 100 * time.Millisecond
	// brief is how long a run takes at most during which others are fetched ahead.
	brief = unclaimed / 5
	// lateCall is how long a call that was recalled may still arrive.
	lateCall = time.Minute
	// repeatFirst and repeatMost are the pauses between the attempts at a call that was not answered, and repeatLimit
	// how long they go on.
	repeatFirst = 5 * time.Millisecond
	repeatMost  = time.Second
	repeatLimit = time.Hour
	// callTimeout bounds one pipeline.
	callTimeout = 2 * time.Second
	// leaders is how many pipelines are under way at a time: when Redis has answered one, it has the next one at hand, while
	// this process works on a third. The next one waits for the calls of a third of the slots at most, and for least at most.
	// Fewer would cost Redis and the client more for each of them, and more would be held up if a connection hangs.
	leaders = 3
	least   = 16
	// parts is how many keys a queue has in a script.
	parts = 4
	// fields is how many values a script returns of a task.
	fields = 7
)

// Task is a task that was taken, with asynq's message of it. Run is the name of this run, which its hash has in the
// field pending_since until the next one begins. Wait is the record of its wait, empty for one that has never waited,
// and Sequence names the sequence that it is in, with how.
type Task struct {
	Queue, ID, Run, Message, Wait, Sequence string
	// Woken says that it did not come by its timer, and WokenFor how long before the call that was; zero if unknown.
	Woken    bool
	WokenFor time.Duration
	// Recorded are the keys that were recorded with the task, encoded. Taken are their locks, if they were taken with it,
	// and Refused says that one of them is held.
	Recorded string
	Taken    *colocated.Taken
	Refused  *colocated.Refused
	found    bool // Recorded was found in the message
	// Held is the lease of a task that Tasks has locked.
	Held colocated.Held
}

// Options configures an [Intake].
type Options struct {
	// Queues are those of the server, by their priorities, and Strict its StrictPriority.
	Queues map[string]int
	Strict bool
	// Slots is its Concurrency.
	Slots int
	// Lanes have further queues of the server, on a Redis Cluster: one in each lane for each of Queues, of which there are MostQueues at most.
	Lanes lanes.Lanes
	// Stopping, when it is closed, ends the taking of tasks with acknowledgements. Never when nil.
	Stopping <-chan struct{}
	// Background runs a call until it is answered, beyond the call of asynq, and reports false when that is no longer
	// possible. A goroutine of its own when nil.
	Background func(limit time.Duration, do func(context.Context)) bool
	// Locks are the locks that tasks of some Types are taken with, if they are on the Redis of the tasks.
	Locks colocated.Locks
	Types *colocated.Types
	// KeysIn returns the keys of a task by its message, encoded as they are recorded; "" if they are not known before its run.
	// When nil, only recorded keys are taken with tasks. It must be quick.
	KeysIn func(message string) string
	// Worker returns the name of the worker that may be in the names of the runs that begin now, "" if they are not to tell it. When
	// nil, they never do.
	Worker func() string
	// Tasks learns of the tasks. When nil, asynq gets all of them.
	Tasks Tasks
	// Parking has tasks parked by the script that would fetch them. When nil, Tasks is asked about all that were refused.
	Parking *Parking
	// Marks says that some acknowledgements have an Ending.
	Marks bool
}

// Tasks learns of the tasks that an Intake has taken.
type Tasks interface {
	// Lock has the keys of tasks locked that were taken without, if their locks are elsewhere. It calls locked for each of these
	// tasks later, with Held or Refused, or neither if its run is to try. It returns the others.
	Lock(all []Task, locked func(Task)) (others []Task)
	// Fetched is called for each task that asynq is to have, once it was taken.
	Fetched(t Task)
	// Park takes a task that was Refused, if it is to be parked without a run; then it returns true, and calls parked once
	// the task needs no slot any more. If the task gets its locks before, asynq is to have it: deliver reports false if it takes no
	// more tasks.
	Park(t Task, parked func(), deliver func() bool) bool
	// Left is called for a task that asynq does not take, whether Fetched was called or not. It returns the release of its locks, nil for none.
	Left(t Task) *colocated.Release
}

// Intake takes tasks for one asynq server. It is safe for concurrent use.
type Intake struct {
	client   redis.UniversalClient
	order    *order
	places   map[string]*place // by their queues
	slots    *slots
	rests    *rests
	oneNode  bool     // one place has all queues
	turning  *turning // of the places if there are lanes; else nil
	stopping <-chan struct{}
	drained  atomic.Bool
	quiet    atomic.Bool // asynq does not fetch
	spawn    func(limit time.Duration, do func(context.Context)) bool
	locks    colocated.Locks
	types    *colocated.Types
	keysIn   func(message string) string
	tasks    Tasks
	parking  *Parking
	marks    bool

	worker func() string

	fetchScript  *pipeline.Script
	recallScript *pipeline.Script
	ackScripts   sync.Map       // by asynq's text
	crowd        pipeline.Crowd // of the lanes

	mu     sync.Mutex
	others map[string]*place // of queues that are not the server's
	calls  int               // under way
	idle   chan struct{}     // closed when none is; nil while Drain does not wait
	timer  *time.Timer       // looks for tasks that lie in memory for too long
}

// New returns an Intake on the Redis of a client.
func New(client redis.UniversalClient, opts Options) *Intake {
	in := &Intake{
		client: client, order: newOrder(opts.Queues, opts.Strict), slots: newSlots(opts.Slots), rests: newRests(),
		stopping: opts.Stopping, spawn: opts.Background,
		locks: opts.Locks, types: opts.Types, keysIn: opts.KeysIn, tasks: opts.Tasks,
		parking: opts.Parking, marks: opts.Marks, worker: opts.Worker, fetchScript: pipeline.NewScript(opts.Parking.source(fetchSource)),
		recallScript: pipeline.NewScript(opts.Parking.source(recallSource)),
	}
	_, oneNode := client.(*redis.Client)
	in.oneNode = oneNode && len(in.order.names) <= MostQueues
	in.places = in.placesOf(opts.Lanes, opts.Strict)
	if in.spawn == nil {
		in.spawn = func(limit time.Duration, do func(context.Context)) bool {
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), limit)
				defer cancel()
				do(ctx)
			}()
			return true
		}
	}
	return in
}

// Arrived has a value after tasks have come.
func (in *Intake) Arrived() <-chan struct{} { return in.slots.arrived }

// Take gives asynq a task that was taken for it, if there is one. A task whose last run on this server has just ended
// may rest for a moment.
func (in *Intake) Take() (Task, bool) {
	for {
		t, ok, wait := in.slots.take(in.rests.of)
		if wait == 0 {
			return t, ok
		}
		<-time.After(wait) // it rests, or goes back
	}
}

// Acknowledging notes that asynq acknowledges a run. over is called when asynq has its answer.
func (in *Intake) Acknowledging(queue, id string) (over func()) {
	in.rests.acknowledging(id) // before the slot is free for its next run
	in.slots.ending(name{queue, id})
	return func() { in.rests.acknowledged(id, time.Now()) }
}

// Beat notes that a call of asynq's heartbeat begins. answered is called with its end.
func (in *Intake) Beat() (answered func()) {
	end := in.rests.beat(time.Now())
	return func() { end(time.Now()) }
}

// Extended notes that asynq has extended its leases on tasks of a queue, in a call that began at a time.
func (in *Intake) Extended(queue string, ids []string, began time.Time) {
	in.slots.extend(queue, ids, began)
}

// AllAtOnce reports whether a Fetch for one queue looks at all of them.
func (in *Intake) AllAtOnce() bool { return in.oneNode || in.turning != nil }

// Starves reports whether the last Fetch has got no slot, because the tasks of other calls are about to fill it.
func (in *Intake) Starves() bool { return in.slots.starves() }

// Full reports whether asynq has a task for each of its slots, so that it does not fetch.
func (in *Intake) Full() bool { return in.slots.full() }

func (in *Intake) isStopping() bool {
	select {
	case <-in.stopping:
		return true
	default:
		return in.drained.Load()
	}
}
