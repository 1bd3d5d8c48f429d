package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/lanemove"
	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/namespace"
	"github.com/railtoken/railtoken/internal/rediswire"
)

const (
	// mostTasks limits how many waiting tasks are read, and mostActive how many active ones of a queue.
	mostTasks, mostActive = 10_000, 1000
	// mostKeys and mostWaiters limit how many keys are read, and how many waiters of each.
	mostKeys, mostWaiters = 1000, 1000
	// mostMessages limits how many messages are read, which have the payloads of tasks.
	mostMessages = 200
	// batch is how many commands are sent at a time, because Redis does nothing else meanwhile.
	batch = 500
)

// pipelined sends a command for each item, and passes each reply on, unless it has none.
func pipelined[T any, C redis.Cmder](
	ctx context.Context, client redis.UniversalClient, items []T, send func(redis.Pipeliner, *T) C, note func(*T, C),
) error {
	for part := range slices.Chunk(items, batch) {
		cmds := make([]C, len(part))
		_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := range part {
				cmds[i] = send(p, &part[i])
			}
			return nil
		})
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		for i, cmd := range cmds {
			if cmd.Err() == nil {
				note(&part[i], cmd)
			}
		}
	}
	return nil
}

// gatherQueues reads asynq's queues and servers.
func (f *Facts) gatherQueues(ctx context.Context, client redis.UniversalClient) error {
	names, err := client.SMembers(ctx, asynqwire.Queues).Result()
	if err != nil {
		return err
	}
	servers, err := asynqwire.Servers(ctx, client)
	if err != nil {
		return err
	}
	f.Servings = len(servers)
	if err := f.gatherFull(ctx, client, servers); err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		q := Queue{Name: name}
		for _, s := range servers {
			q.Served = q.Served || s.Queues[name] > 0 || s.Queues[lanes.Base(name)] > 0
		}
		f.Queues = append(f.Queues, q)
	}
	err = pipelined(ctx, client, f.Queues, func(p redis.Pipeliner, q *Queue) *redis.IntCmd {
		return p.Exists(ctx, asynqwire.Paused(q.Name))
	}, func(q *Queue, paused *redis.IntCmd) { q.Paused = paused.Val() > 0 })
	if err != nil {
		return err
	}
	err = pipelined(ctx, client, f.Queues, func(p redis.Pipeliner, q *Queue) *redis.IntCmd {
		return p.LLen(ctx, asynqwire.Pending(q.Name))
	}, func(q *Queue, n *redis.IntCmd) { q.Pending = int(n.Val()) })
	if err != nil || f.lines.Count() == 0 {
		return err
	}
	return pipelined(ctx, client, f.Queues, func(p redis.Pipeliner, q *Queue) *redis.IntCmd {
		return p.HLen(ctx, lanemove.Record(q.Name))
	}, func(q *Queue, n *redis.IntCmd) {
		if _, inLane := f.lines.In(q.Name); !inLane {
			q.Taken = lanemove.Taken(n.Val())
		}
	})
}

// waiting is a task of the index.
type waiting struct {
	task  delayqueue.Task
	state string
	key   string
	also  []string
	first time.Time
	msg   string
}

func (w *waiting) over() bool {
	return w.state == "" || w.state == "archived" || w.state == "completed"
}

// gatherWaits reads the waiting tasks and their keys.
func (f *Facts) gatherWaits(ctx context.Context, client redis.UniversalClient) error {
	f.in = namespace.Of(client)
	var entries []string
	err := pipelined(ctx, client, f.lines.Indexes(), func(p redis.Pipeliner, index *string) *redis.StringSliceCmd {
		return p.ZRange(ctx, *index, 0, mostTasks-1)
	}, func(_ *string, some *redis.StringSliceCmd) { entries = append(entries, some.Val()...) })
	if err != nil {
		return err
	}
	var tasks []waiting
	for _, entry := range entries {
		if t, err := line.ParseEntry(entry); err == nil {
			tasks = append(tasks, waiting{task: delayqueue.Task(t)})
		}
	}
	err = pipelined(ctx, client, tasks, func(p redis.Pipeliner, w *waiting) *redis.SliceCmd {
		return p.HMGet(ctx, line.Task(w.task).Hash(), asynqwire.StateField, line.WaitField)
	}, func(w *waiting, reply *redis.SliceCmd) { w.read(reply.Val()) })
	if err != nil {
		return err
	}
	// An entry is a fault only if its task is gone, not if it runs.
	if err := f.readMessages(ctx, client, tasks); err != nil {
		return err
	}
	names := map[string]bool{}
	for _, w := range tasks {
		switch {
		case w.over():
			f.Lost = append(f.Lost, w.task)
		case w.key != "":
			for _, key := range append(w.also, w.key) {
				names[key] = true
			}
			f.note(w)
		}
	}
	for name := range names {
		if len(f.Keys) < mostKeys {
			f.Keys = append(f.Keys, Key{Name: name})
		}
	}
	slices.SortFunc(f.Keys, func(a, b Key) int { return slices.Compare([]byte(a.Name), []byte(b.Name)) })
	if err := f.gatherKeys(ctx, client); err != nil {
		return err
	}
	if _, cluster := client.(*redis.ClusterClient); cluster {
		f.countSlots()
	}
	return nil
}

func (w *waiting) read(fields []any) {
	w.state, _ = fields[0].(string)
	wait := line.ParseWait(fields[1])
	if key, ok := wait.Key(); ok {
		w.key, w.also = key, wait.Keys[1:]
	}
	w.first = wait.First
}

// readMessages reads the messages of some of the tasks.
func (f *Facts) readMessages(ctx context.Context, client redis.UniversalClient, tasks []waiting) error {
	return pipelined(ctx, client, tasks[:min(len(tasks), mostMessages)], func(p redis.Pipeliner,
		w *waiting,
	) *redis.StringCmd {
		return p.HGet(ctx, line.Task(w.task).Hash(), asynqwire.MessageField)
	}, func(w *waiting, msg *redis.StringCmd) { w.msg = msg.Val() })
}

// note adds a task that waits.
func (f *Facts) note(w waiting) {
	wait := Wait{Task: w.task, Key: w.key, Since: w.first}
	wait.Type, wait.Timeout, wait.Deadline = line.Described(w.msg)
	if !wait.Since.IsZero() {
		f.Waits = append(f.Waits, wait)
	}
	for i := range f.Queues {
		if f.Queues[i].Name == w.task.Queue && w.state == string(delayqueue.StateRetry) {
			f.Queues[i].Waiting++
		}
	}
}

// gatherKeys reads the waiters of the keys, whether their tasks exist, and whether they are in the sequences.
func (f *Facts) gatherKeys(ctx context.Context, client redis.UniversalClient) error {
	type waiter struct {
		key   *Key
		entry string
		task  delayqueue.Task
		at    float64 // in the sequence
		gone  bool
	}
	var waiters []waiter
	err := pipelined(ctx, client, f.Keys, func(p redis.Pipeliner, k *Key) *redis.StringSliceCmd {
		return p.ZRange(ctx, f.lines.Waiters(k.Name), 0, mostWaiters-1)
	}, func(k *Key, entries *redis.StringSliceCmd) {
		for _, entry := range entries.Val() {
			t, err := line.ParseEntry(entry)
			if err == nil {
				waiters = append(waiters, waiter{key: k, entry: entry, task: delayqueue.Task(t), gone: true})
			}
		}
	})
	if err != nil {
		return err
	}
	if err := pipelined(ctx, client, f.Keys, func(p redis.Pipeliner, k *Key) *redis.IntCmd {
		return p.ZCard(ctx, f.lines.Sequence(k.Name))
	}, func(k *Key, n *redis.IntCmd) { k.Ordered = int(n.Val()) }); err != nil {
		return err
	}
	if err := pipelined(ctx, client, waiters, func(p redis.Pipeliner, w *waiter) *redis.StringCmd {
		return p.HGet(ctx, line.Task(w.task).Hash(), asynqwire.StateField)
	}, func(w *waiter, state *redis.StringCmd) {
		w.gone = state.Val() == "archived" || state.Val() == "completed"
	}); err != nil {
		return err
	}
	if err := pipelined(ctx, client, waiters, func(p redis.Pipeliner, w *waiter) *redis.FloatCmd {
		return p.ZScore(ctx, f.lines.Sequence(w.key.Name), w.entry)
	}, func(w *waiter, at *redis.FloatCmd) { w.at = at.Val() }); err != nil {
		return err
	}
	for _, w := range waiters {
		switch {
		case w.gone:
			w.key.Gone = append(w.key.Gone, w.task)
		case w.at == 0:
			w.key.Unordered = append(w.key.Unordered, w.task)
		}
	}
	return nil
}

// countSlots counts the waiting and pending tasks by slots.
func (f *Facts) countSlots() {
	f.Slots = map[int]Slot{}
	count := func(name, what string, n int) {
		slot := rediswire.Slot(name)
		s := f.Slots[slot]
		if s.Tasks += n; n > s.Most {
			s.What, s.Most = what, n
		}
		f.Slots[slot] = s
	}
	for _, q := range f.Queues {
		count(asynqwire.Pending(q.Name), "queue "+q.Name, q.Pending+q.Waiting)
	}
	byKey := map[string]int{}
	for _, w := range f.Waits {
		byKey[w.Key]++
	}
	for key, n := range byKey {
		count(f.lines.Waiters(key), "key "+key, n)
	}
}

// gatherActive reads the tasks that run, and their leases.
func (f *Facts) gatherActive(ctx context.Context, client redis.UniversalClient) error {
	var all []Active
	err := pipelined(ctx, client, f.Queues, func(p redis.Pipeliner, q *Queue) *redis.StringSliceCmd {
		return p.LRange(ctx, asynqwire.Active(q.Name), 0, mostActive-1)
	}, func(q *Queue, ids *redis.StringSliceCmd) {
		for _, id := range ids.Val() {
			all = append(all, Active{Task: delayqueue.Task{Queue: q.Name, ID: id}})
		}
	})
	if err != nil {
		return err
	}
	if err := pipelined(ctx, client, all, func(p redis.Pipeliner, a *Active) *redis.FloatCmd {
		return p.ZScore(ctx, asynqwire.Lease(a.Task.Queue), a.Task.ID)
	}, func(a *Active, at *redis.FloatCmd) { a.Lease = time.Unix(int64(at.Val()), 0) }); err != nil {
		return err
	}
	held := map[string]bool{}
	for _, h := range f.Holds {
		held[h.Task] = true
	}
	if err := pipelined(ctx, client, all[:min(len(all), mostMessages)], func(p redis.Pipeliner,
		a *Active,
	) *redis.SliceCmd {
		return p.HMGet(ctx, line.Task(a.Task).Hash(), asynqwire.MessageField, "railtoken:keys", line.DeathsField, line.NonceField)
	}, func(a *Active, reply *redis.SliceCmd) {
		msg, _ := reply.Val()[0].(string)
		a.Type, a.Timeout, _ = line.Described(msg)
		a.Deaths = line.Deaths(reply.Val()[2], msg, reply.Val()[3])
		a.Keyed = reply.Val()[1] != nil || held[a.Task.String()]
	}); err != nil {
		return err
	}
	f.Active = all
	return nil
}

// gatherScripts asks whether Redis knows the scripts that servers of the supported asynq run by themselves. On a Cluster
// each runs where the queue is, so it is enough that one master knows it.
func (f *Facts) gatherScripts(ctx context.Context, client redis.UniversalClient) error {
	if !namespace.Of(client).IsZero() {
		return nil // Redis knows them by the SHA-1 of other texts, which have the namespace in them
	}
	sums := broker.Regular()
	known := make([]bool, len(sums))
	var mu sync.Mutex
	look := func(ctx context.Context, server *redis.Client) error {
		found, err := server.ScriptExists(ctx, sums...).Result()
		mu.Lock()
		defer mu.Unlock()
		for i := range found {
			known[i] = known[i] || found[i]
		}
		return err
	}
	var err error
	switch c := client.(type) {
	case *redis.ClusterClient:
		err = c.ForEachMaster(ctx, look)
	case *redis.Client:
		err = look(ctx, c)
	}
	if err != nil {
		return fmt.Errorf("which scripts Redis knows: %w", err)
	}
	for _, k := range known {
		if !k {
			f.Scripts++
		}
	}
	return nil
}
