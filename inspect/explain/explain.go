package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/holdings"
	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/preflight"
	"github.com/railtoken/railtoken/internal/rediswire"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// mostPending limits how far back a pending task is looked for in its queue.
const mostPending = 100_000

// Options says where tasks and locks are. Tasks and Inspector must be set.
type Options struct {
	// Tasks is the Redis of the tasks, and Inspector looks at it and at the locks. Both are required.
	Tasks     redis.UniversalClient
	Inspector *inspect.Inspector
	// Redlock says that the locks are on several independent servers: [inspect.Options].Nodes.
	Redlock bool
}

// Task explains why a task does not run, as far as can be seen from outside the workers. A task that asynq does not know
// is not an error: its cause is [NoSuchTask]. Times are by this machine's clock, except those that Redis or a worker has
// recorded.
//
// It makes about twenty calls to Redis, and changes nothing. It tries a write on a key of its own, which it deletes, because a
// server that answers may refuse writes.
func Task(ctx context.Context, o Options, t delayqueue.Task) (Explanation, error) {
	if o.Tasks == nil || o.Inspector == nil {
		return Explanation{}, errors.New("explain: Options.Tasks and Options.Inspector must be set")
	}
	f := facts{now: time.Now(), task: t}
	if err := f.gather(ctx, o); err != nil {
		return Explanation{}, fmt.Errorf("explain: task %s: %w", t, err)
	}
	return decide(f), nil
}

// gather asks for everything, one thing after another: the task may move on meanwhile, so what is asked first is what
// the rest depends on.
func (f *facts) gather(ctx context.Context, o Options) error {
	info, found, err := asynqwire.TaskOf(ctx, o.Tasks, f.task.Queue, f.task.ID)
	if err != nil || !found {
		return err
	}
	f.read(info)
	if err := f.readRecord(ctx, o.Tasks); err != nil {
		return err
	}
	if !f.over() {
		f.refuses = preflight.WriteNear(ctx, o.Tasks, f.task.Queue)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	servers, err := asynqwire.Servers(ctx, o.Tasks)
	if err != nil {
		return err
	}
	f.readServers(servers)
	if f.votes, err = look(ctx, o); err != nil {
		return err
	}
	if err := f.readReports(ctx, o.Inspector); err != nil {
		return err
	}
	if f.key == "" && len(f.keys) > 0 {
		f.key = f.keys[0]
	}
	if f.key == "" && f.state == "active" {
		if err := f.findKey(ctx, o); err != nil {
			return err
		}
	}
	if f.key == "" {
		return nil
	}
	if err := f.readKey(ctx, o); err != nil {
		return err
	}
	if f.delayed() && f.position == 0 && f.sequence.position == 0 {
		// Its record names the key for which it was woken, but it does not wait for it now.
		f.key, f.others, f.holder, f.conflicts, f.postponed, f.supersedes = "", nil, nil, 0, f.putBack, ""
	}
	return nil
}

// read notes what asynq says.
func (f *facts) read(info asynqwire.Task) {
	f.state, f.taskType, f.deadline = info.State, info.Type, info.Deadline
	f.retried, f.most, f.lastErr, f.failedAt = info.Retried, info.MaxRetry, info.LastErr, info.LastFailedAt
	if f.lastErr == line.WaitText {
		f.lastErr = ""
	}
	f.due = info.NextProcessAt
	if info.State == "archived" {
		f.refused, _ = middleware.ParseConflict(info.Result)
	}
}

// readRecord reads what is recorded of the task's waiting, and where it is in its queue.
func (f *facts) readRecord(ctx context.Context, client redis.UniversalClient) error {
	t := line.Task(f.task)
	var fields *redis.SliceCmd
	var lease *redis.FloatCmd
	var paused, length, at *redis.IntCmd
	_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
		fields = p.HMGet(ctx, t.Hash(), "railtoken:keys", line.NonceField, asynqwire.PendingSinceField, "railtoken:sequence", line.WaitField, line.CancelField,
			line.ForemostField, line.DeathsField, asynqwire.MessageField)
		lease = p.ZScore(ctx, asynqwire.Lease(t.Queue), t.ID)
		paused = p.Exists(ctx, asynqwire.Paused(t.Queue))
		if f.state == "pending" {
			length = p.LLen(ctx, asynqwire.Pending(t.Queue))
			at = p.LPos(ctx, asynqwire.Pending(t.Queue), t.ID, redis.LPosArgs{Rank: -1, MaxLen: mostPending})
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	text := make([]string, 9)
	for i, field := range fields.Val() {
		text[i], _ = field.(string)
	}
	wait := line.ParseWait(text[4])
	if key, ok := wait.Key(); ok && f.state == "retry" {
		f.key, f.others = key, wait.Keys[1:]
	} else if key, ok := line.SequenceOf(text[3]); ok && f.delayed() {
		f.key = key
	}
	f.conflicts, f.first = wait.Count, wait.First
	if !f.over() {
		f.deaths = line.Deaths(text[7], text[8], text[1])
	}
	if f.state == "retry" {
		f.supersedes = text[6]
	}
	for encoded := range strings.SplitSeq(text[0], " ") {
		if key, ok := rediswire.Decode(encoded); ok {
			f.keys = append(f.keys, key)
		}
	}
	if c, ok := line.ParseCancellation(text[5]); ok {
		f.cancelled = "it was cancelled by " + c.By
		if c.Why != "" {
			f.cancelled += " (" + c.Why + ")"
		}
	}
	// A call that put the task back has named the run that it has ended.
	f.putBack = f.state == "retry" && text[1] != "" && text[1] == text[2]
	f.postponed = f.putBack && f.key == "" && f.conflicts == 0
	if lease.Err() == nil && f.state == "active" {
		f.lease = time.Unix(int64(lease.Val()), 0)
	}
	f.paused = paused.Val() > 0
	if at != nil && at.Err() == nil {
		f.pending = int(length.Val() - 1 - at.Val())
	}
	return nil
}

// mostAwaited limits how many keys are looked at for that of a task which no worker reports.
const mostAwaited = 20

// findKey looks for a key that the task holds among those that most tasks wait for: the worker of the task may be silent.
func (f *facts) findKey(ctx context.Context, o Options) error {
	awaited, err := o.Inspector.Queue().Inspector().Keys(ctx, mostAwaited)
	if err != nil {
		return err
	}
	for _, k := range awaited {
		state, err := o.Inspector.Look(ctx, k.Key, 0)
		if err != nil {
			return err
		}
		if state.Holder != nil && strings.HasSuffix(state.Holder.Label, "/"+f.task.ID) {
			f.key = k.Key
			return nil
		}
	}
	return nil
}

// processOf returns host/PID of the label of a lock.
func processOf(label string) string {
	parts := strings.SplitN(label, "/", 3)
	if len(parts) < 3 {
		return ""
	}
	return parts[0] + "/" + parts[1]
}

// readServers finds out which queues servers work on.
func (f *facts) readServers(servers []asynqwire.Server) {
	f.served = map[string]bool{}
	for _, s := range servers {
		for queue := range s.Queues {
			f.served[queue] = true
		}
	}
	f.unserved = !f.serves(f.task.Queue)
}

// serves reports whether a server works on a queue. Servers name the queues without their lanes.
func (f *facts) serves(queue string) bool { return f.served[queue] || f.served[lanes.Base(queue)] }

// readReports finds out from the reports of the workers whether the task holds keys, and whether there are locks that the
// Inspector does not see.
func (f *facts) readReports(ctx context.Context, i *inspect.Inspector) error {
	workers, err := i.Workers(ctx)
	if err != nil {
		return err
	}
	for _, w := range workers {
		if !holdings.OnRedis(w.Backend) {
			f.unseen = w.Backend
		}
		for _, h := range w.Held {
			if h.Task == f.task && f.state == "active" {
				f.holds, f.runner = true, w.Host+"/"+strconv.Itoa(w.PID)
				if f.key == "" {
					f.key = h.Key
				}
			}
		}
	}
	return nil
}

// readKey reads who holds the key, and who waits for it.
func (f *facts) readKey(ctx context.Context, o Options) error {
	k, err := o.Inspector.Look(ctx, f.key, 1)
	if err != nil && f.votes.servers == 0 {
		return err // otherwise too few lock servers answer, which the explanation says
	}
	if k.Holder != nil {
		h := k.Holder
		if h.Backend != "" {
			f.unseen, f.elsewhere = h.Backend, true
		}
		f.holder = &locking.Holder{Label: h.Label, Since: h.Since, Remaining: h.Remaining}
		f.by, f.silent, f.process = h.Running, h.Silent, processOf(h.Label)
		if f.by == f.task && f.state == "active" {
			f.holds = true
			f.runner = cmp.Or(f.runner, f.process)
		}
	}
	f.waiters = k.Waiting
	if !f.delayed() {
		return nil
	}
	entry, names := line.Task(f.task).Entry(), (*line.Engine)(o.Inspector.Queue()).Names()
	var rank, place *redis.IntCmd
	_, err = o.Tasks.Pipelined(ctx, func(p redis.Pipeliner) error {
		rank = p.ZRank(ctx, names.Waiters(f.key), entry)
		place = p.ZRank(ctx, names.Sequence(f.key), entry)
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	if rank.Err() == nil {
		f.position = int(rank.Val()) + 1
	}
	if len(k.Sequence) > 0 && place.Err() == nil {
		return f.readSequence(ctx, o, *cmp.Or(k.Head(), &k.Sequence[0]), int(place.Val())+1)
	}
	return nil
}

// readSequence reads what the first task of the sequence does.
func (f *facts) readSequence(ctx context.Context, o Options, first delayqueue.Waiter, position int) error {
	f.sequence = place{position: position, first: first.Task, state: string(first.State), due: first.Next, failed: first.Failed}
	paused, err := o.Tasks.Exists(ctx, asynqwire.Paused(first.Task.Queue)).Result()
	if err != nil {
		return err
	}
	f.sequence.paused, f.sequence.unserved = paused > 0, !f.serves(first.Task.Queue)
	if !f.sequence.failed {
		return nil
	}
	info, _, err := asynqwire.TaskOf(ctx, o.Tasks, first.Task.Queue, first.Task.ID)
	f.sequence.lastErr = info.LastErr
	return err
}

// look asks the lock servers of a Redlock whether they may vote.
func look(ctx context.Context, o Options) (v votes, err error) {
	if !o.Redlock {
		return v, nil
	}
	nodes, err := o.Inspector.Nodes(ctx)
	if err != nil {
		return v, err
	}
	var wait []time.Duration
	for _, n := range nodes {
		v.servers++
		switch {
		case n.Err != nil:
			v.refusals = append(v.refusals, n.Addr+": it cannot be reached")
			continue
		case n.Refused != "":
			v.refusals = append(v.refusals, n.Addr+": "+n.Refused)
			if n.VotesIn > 0 {
				wait = append(wait, n.VotesIn)
			}
		default:
			v.may++
		}
		v.reached++
	}
	if missing := v.servers/2 + 1 - v.may; missing > 0 && missing <= len(wait) {
		slices.Sort(wait)
		v.quarantined = time.Now().Add(wait[missing-1])
	}
	return v, nil
}
