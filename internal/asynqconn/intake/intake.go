package intake

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/pipeline"
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
	//go:embed lua/give_back.lua
	giveBackSource string

	fetchScript    = pipeline.NewScript(grantSource + fetchSource)
	recallScript   = pipeline.NewScript(grantSource + recallSource)
	giveBackScript = pipeline.NewScript(giveBackSource)
	ackScripts     sync.Map // by asynq's text
)

const (
	// lease is asynq's own: how long a task is active before it is taken for one of a dead worker.
	lease = 30 * time.Second
	// unclaimed is how long a task may lie in memory.
	unclaimed = 100 * time.Millisecond
	// lateCall is how long a call that was recalled may still arrive.
	lateCall = time.Minute
	// repeatFirst and repeatMost are the pauses between the attempts at a call that was not answered, and repeatLimit
	// how long they go on.
	repeatFirst = 5 * time.Millisecond
	repeatMost  = time.Second
	repeatLimit = time.Hour
	// callTimeout bounds one pipeline.
	callTimeout = 2 * time.Second
	// leaders is how many pipelines are under way at a time: one is answered while the next one is sent.
	leaders = 2
	// parts is how many keys a queue has in a script.
	parts = 4
	// fields is how many values a script returns of a task.
	fields = 8
)

// Task is a task that was taken, with asynq's message of it. Run is the name of this run, which its hash has in the
// field railtoken:run until the next one begins. The rest is what its hash has noted of its waiting, empty for one that
// has never waited.
type Task struct {
	Queue, ID, Run, Message   string
	Retried, Conflicts, First string
	Woken                     bool
}

// Options configures an [Intake].
type Options struct {
	// Queues are those of the server, by their priorities, and Strict its StrictPriority.
	Queues map[string]int
	Strict bool
	// Slots is its Concurrency.
	Slots int
	// Stopping, when it is closed, ends the taking of tasks with acknowledgements. Never when nil.
	Stopping <-chan struct{}
	// Background runs a call until it is answered, beyond the call of asynq, and reports false when that is no longer
	// possible. A goroutine of its own when nil.
	Background func(limit time.Duration, do func(context.Context)) bool
}

// Intake takes tasks for one asynq server. It is safe for concurrent use.
type Intake struct {
	server   *pipeline.Server
	order    *order
	slots    *slots
	oneNode  bool
	stopping <-chan struct{}
	drained  atomic.Bool
	quiet    atomic.Bool // asynq does not fetch
	spawn    func(limit time.Duration, do func(context.Context)) bool

	recalling chan struct{}               // has a value while the last fetch is recalled, or a fetch is under way
	lost      func(context.Context) error // recalls the last fetch, unless it was answered

	mu    sync.Mutex
	calls int           // under way
	idle  chan struct{} // closed when none is; nil while Drain does not wait
	timer *time.Timer   // looks for tasks that lie in memory for too long
}

// New returns an Intake on the Redis of a client.
func New(client redis.UniversalClient, opts Options) *Intake {
	in := &Intake{
		order: newOrder(opts.Queues, opts.Strict), slots: newSlots(opts.Slots),
		recalling: make(chan struct{}, 1), stopping: opts.Stopping, spawn: opts.Background,
	}
	_, oneNode := client.(*redis.Client)
	in.oneNode = oneNode && len(in.order.names) <= mostQueues
	sending := pipeline.Options{}
	if oneNode {
		sending.Leaders, sending.Timeout = leaders, callTimeout
	}
	in.server = pipeline.New(client, sending)
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

// Take gives asynq a task that was taken for it, if there is one.
func (in *Intake) Take() (Task, bool) { return in.slots.take() }

// AllAtOnce reports whether a Fetch for one queue looks at all of them.
func (in *Intake) AllAtOnce() bool { return in.oneNode }

// namesFor returns the queues that a Fetch for one of them looks at.
func (in *Intake) namesFor(queue string) []string {
	if in.oneNode && slices.Contains(in.order.names, queue) {
		return in.order.names
	}
	return []string{queue}
}

// Fetch takes tasks from the queues of the server, or on a Redis Cluster from the one that asynq has asked for.
func (in *Intake) Fetch(ctx context.Context, queue string) error {
	if !in.begin(false) {
		return redis.Nil
	}
	defer in.end()
	in.quiet.Store(false)
	names := in.namesFor(queue)
	n := in.slots.ask(1)
	if in.isStopping() {
		in.slots.answered(n-1, nil, time.Time{})
		n = 1
	}
	if !in.oneNode {
		share := in.order.share(queue, n)
		in.slots.answered(n-share, nil, time.Time{})
		n = share
	}
	call := rand.Text()
	keys := append(keysOf(names), recalledKey(queue, call))
	args := []any{call, n, leaseEnd()}
	if len(names) > 1 {
		args = in.orders(args, n)
	} else {
		args = append(args, "\x01")
	}
	in.recalling <- struct{}{}
	defer func() { <-in.recalling }()
	if err := in.recall(ctx); err != nil {
		in.slots.answered(n, nil, time.Time{})
		return err
	}
	tasks, _, err := in.run(ctx, fetchScript, keys, args, names, 0)
	if !unanswered(err) {
		in.came(n, tasks)
		return err
	}
	in.lost = func(ctx context.Context) error {
		tasks, _, err := in.run(ctx, recallScript, keys, []any{call, int(lateCall.Seconds()), leaseEnd()}, names, 0)
		if !passes(err) {
			in.came(n, tasks)
			err = nil
		}
		return err
	}
	if in.recall(ctx) == nil {
		return nil
	}
	in.repeat(func(ctx context.Context) error { // asynq asks for no other task while it has as many as it can run
		in.recalling <- struct{}{}
		defer func() { <-in.recalling }()
		return in.recall(ctx)
	})
	return err
}

// recall asks for the tasks of the last fetch if it was not answered. The caller has put a value into recalling.
func (in *Intake) recall(ctx context.Context) error {
	if in.lost == nil {
		return nil
	}
	err := in.lost(ctx)
	if err == nil {
		in.lost = nil
	}
	return err
}

// orders adds n orders of the queues to the arguments of a script.
func (in *Intake) orders(args []any, n int) []any {
	if in.order.fixed != "" {
		return append(args, in.order.fixed)
	}
	for range n {
		args = append(args, in.order.next())
	}
	return args
}

// Acknowledgement is asynq's end of a run.
type Acknowledgement struct {
	Queue, ID string
	Text      string // of asynq's script; "" when it is not known yet
	Keys      []string
	Args      []any
}

// End notes that a run ends whose acknowledgement the caller sends by itself.
func (in *Intake) End(queue, id string) { in.slots.end(name{queue, id}) }

// Fuses reports whether Acknowledge would take tasks together with the end of a run.
func (in *Intake) Fuses(queue, id string) bool {
	return in.fuses() && in.slots.has(name{queue, id})
}

// Acknowledge ends a run and takes the next tasks. ok is false when nothing was sent: the run is not one of this
// Intake, or nothing can be taken now.
func (in *Intake) Acknowledge(ctx context.Context, a Acknowledgement) (ok bool, err error) {
	run, known := in.slots.end(name{a.Queue, a.ID})
	if !known || !in.fuses() || a.Text == "" {
		return false, nil
	}
	at := slices.Index(a.Keys, "asynq:{"+a.Queue+"}:t:"+a.ID)
	if at < 0 {
		return false, nil
	}
	if !in.begin(false) {
		return false, nil
	}
	defer in.end()
	n := in.slots.ask(0)
	if n == 0 {
		return false, nil
	}
	names, call := in.order.names, rand.Text()
	keys := slices.Concat(a.Keys, keysOf(names))
	args := make([]any, 0, len(a.Args)+8+n)
	args = append(args, a.Args...)
	args = append(args, at+1, run, call, n, leaseEnd(), 0)
	args = in.orders(args, n)
	args = append(args, len(a.Keys), len(a.Args))
	script := ackScript(a.Text)
	tasks, live, err := in.run(ctx, script, keys, args, names, 1)
	if !unanswered(err) {
		in.came(n, tasks)
		if err == nil && !live {
			err = errNotFound
		}
		return true, err
	}
	args[len(a.Args)+5] = 1
	if in.repeat(func(ctx context.Context) error {
		args[len(a.Args)+4] = leaseEnd()
		tasks, _, err := in.run(ctx, script, keys, args, names, 1)
		if !passes(err) {
			in.came(n, tasks)
			err = nil
		}
		return err
	}) {
		return true, nil
	}
	in.slots.answered(n, nil, time.Time{})
	return true, err
}

// leaseEnd returns when the lease ends of a task that is taken now (s).
func leaseEnd() int64 { return time.Now().Add(lease).Unix() }

// passes reports whether a call may succeed later: it was not answered, or Redis has refused it for the moment, as it does
// during a failover.
func passes(err error) bool {
	if unanswered(err) {
		return true
	}
	reply, ok := errors.AsType[redis.Error](err)
	if !ok || errors.Is(err, redis.Nil) {
		return false
	}
	kind, _, _ := strings.Cut(reply.Error(), " ")
	return kind != "ERR" && kind != "NOPERM" && kind != "WRONGTYPE" && kind != "NOT"
}

// errNotFound is what asynq's own scripts answer when the run of a task is another's by now.
var errNotFound = errors.New("NOT FOUND")

// came notes what a call that asked for n tasks has brought.
func (in *Intake) came(n int, tasks []Task) {
	in.slots.answered(n, tasks, time.Now())
	if len(tasks) == 0 {
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.timer == nil {
		in.timer = time.AfterFunc(unclaimed, in.look)
	}
}

// look gives back what lies in memory for too long.
func (in *Intake) look() {
	in.mu.Lock()
	old, next := in.slots.expired(time.Now().Add(-unclaimed))
	in.timer = nil
	if !next.IsZero() {
		in.timer = time.AfterFunc(time.Until(next.Add(unclaimed)), in.look)
	}
	in.mu.Unlock()
	if len(old) > 0 {
		in.quiet.Store(true)
	}
	in.giveBack(old)
}

// Drain gives back what is in memory, once the calls under way are answered. Nothing is taken with acknowledgements
// from then on.
func (in *Intake) Drain(ctx context.Context) {
	in.mu.Lock()
	in.drained.Store(true)
	idle := make(chan struct{})
	if in.calls == 0 {
		close(idle)
	} else {
		in.idle = idle
	}
	in.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
	left, _ := in.slots.expired(time.Now())
	in.giveBack(left)
}

// giveBack puts tasks back that asynq has not taken, the oldest last, so that it is at the head.
func (in *Intake) giveBack(tasks []Task) {
	if len(tasks) == 0 {
		return
	}
	in.repeat(func(ctx context.Context) error {
		for ; len(tasks) > 0; tasks = tasks[:len(tasks)-1] {
			t := tasks[len(tasks)-1]
			queue, woken := keysOf([]string{t.Queue}), 0
			if t.Woken {
				woken = 1
			}
			_, err := in.server.Run(ctx, pipeline.NewCall(nil, giveBackScript,
				[]string{"asynq:{" + t.Queue + "}:t:" + t.ID, queue[2], queue[3], queue[0]},
				t.Run, t.ID, time.Now().UnixNano(), woken))
			if passes(err) {
				return err
			}
		}
		return nil
	})
}

// repeat makes a call in the background until it returns no error, and reports false when the process is ending.
func (in *Intake) repeat(call func(context.Context) error) bool {
	in.begin(true)
	ok := in.spawn(repeatLimit, func(ctx context.Context) {
		defer in.end()
		wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(repeatFirst),
			backoff.WithMaxInterval(repeatMost), backoff.WithMaxElapsedTime(repeatLimit))
		_ = backoff.Retry(func() error { return call(ctx) }, backoff.WithContext(wait, ctx))
	})
	if !ok {
		in.end()
	}
	return ok
}

// begin notes that a call is under way. After a Drain it reports false, unless the call must be made all the same.
func (in *Intake) begin(always bool) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.drained.Load() && !always {
		return false
	}
	in.calls++
	return true
}

// end notes that a call is over.
func (in *Intake) end() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.calls--
	if in.calls == 0 && in.idle != nil {
		close(in.idle)
		in.idle = nil
	}
}

// fuses reports whether tasks are taken with acknowledgements: the queues are on one node, and asynq fetches.
func (in *Intake) fuses() bool { return in.oneNode && !in.quiet.Load() && !in.isStopping() }

func (in *Intake) isStopping() bool {
	select {
	case <-in.stopping:
		return true
	default:
		return in.drained.Load()
	}
}

// keysOf returns the keys of queues in the scripts.
func keysOf(queues []string) []string {
	keys := make([]string, 0, parts*len(queues)+1)
	for _, queue := range queues {
		prefix := "asynq:{" + queue + "}:"
		keys = append(keys, prefix+"pending", prefix+"paused", prefix+"active", prefix+"lease")
	}
	return keys
}

// recalledKey returns the mark of a fetch that was recalled. Its name begins as asynq's own do, because a Redis user of
// asynq's may have no rights to others.
func recalledKey(queue, call string) string { return "asynq:{" + queue + "}:recalled:" + call }

// ackScript returns the script that has an acknowledgement of asynq in it.
func ackScript(text string) *pipeline.Script {
	known, ok := ackScripts.Load(text)
	if !ok {
		source := grantSource + strings.Replace(ackSource, "--SCRIPT--", text, 1)
		known, _ = ackScripts.LoadOrStore(text, pipeline.NewScript(source))
	}
	script, _ := known.(*pipeline.Script)
	return script
}

// run makes one call. No client sends it again by itself.
func (in *Intake) run(ctx context.Context, script *pipeline.Script, keys []string, args []any, names []string, from int,
) (tasks []Task, live bool, err error) {
	reply, err := in.server.Run(ctx, pipeline.NewCall(nil, script, keys, args...))
	if err != nil {
		return nil, false, err
	}
	return tasksOf(reply, names, from)
}

// unanswered reports whether the outcome of a call is not known. What Redis answers is an outcome, and so is that the
// client is closed.
func unanswered(err error) bool {
	if err == nil || errors.Is(err, redis.Nil) || errors.Is(err, redis.ErrClosed) || errors.Is(err, errReply) {
		return false
	}
	var reply redis.Error
	return !errors.As(err, &reply)
}

var errReply = errors.New("asynqconn: unexpected script reply")

// tasksOf reads the reply of a script: the tasks from a position on, and whether the first value is not 0.
func tasksOf(values any, names []string, from int) (tasks []Task, live bool, err error) {
	reply, _ := values.([]any)
	if (len(reply)-from)%fields != 0 || len(reply) < from {
		return nil, false, fmt.Errorf("%w: %d values", errReply, len(reply))
	}
	live = from == 0 || reply[0] != int64(0)
	for rest := reply[from:]; len(rest) > 0; rest = rest[fields:] {
		queue, _ := rest[0].(int64)
		if queue < 1 || int(queue) > len(names) {
			return nil, false, fmt.Errorf("%w: queue %v", errReply, rest[0])
		}
		if rest[3] == nil { // its hash is gone: asynq's own script leaves it, too
			continue
		}
		t := Task{Queue: names[queue-1], Woken: rest[7] != nil}
		for i, to := range []*string{&t.ID, &t.Run, &t.Message, &t.Retried, &t.Conflicts, &t.First} {
			*to, _ = rest[1+i].(string)
		}
		tasks = append(tasks, t)
	}
	return tasks, live, nil
}
