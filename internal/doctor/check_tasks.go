package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/asynqwire"
)

const (
	// lateActive is how long asynq's lease on a task may have ended: its recoverer comes each minute, and takes tasks
	// whose leases ended 30 s ago.
	lateActive = 2 * time.Minute
	// defaultTimeout is what asynq gives a task without a timeout and a deadline.
	defaultTimeout = 30 * time.Minute
	// fewTasks is how many tasks a slot must have at least to count as hot, and hotShare the share of all.
	fewTasks = 1000
	hotShare = 0.3
)

func scripts(f Facts) []Finding {
	if f.Servings == 0 || f.Scripts == 0 {
		return nil
	}
	return []Finding{{
		Where: "asynq",
		What: fmt.Sprintf("%d servers run, and Redis does not know %d of the scripts of the supported asynq",
			f.Servings, f.Scripts),
		Cost:    "tasks in conflict cannot be parked: they are tried again by timers, every few seconds",
		Remedy:  "build the workers with the version of asynq in railtoken's go.mod",
		Command: "go get github.com/hibiken/asynq@v0.26.0",
	}}
}

func unserved(f Facts) (all []Finding) {
	var names []string // of queues without a server
	waiting, pending := 0, 0
	for _, q := range f.folded() {
		all = append(all, inLanes(q)...)
		switch {
		case q.Pending+q.Waiting == 0:
		case q.Paused:
			all = append(all, Finding{
				Where: "queue " + q.Name,
				What:  fmt.Sprintf("it is paused, and %d of its tasks wait for keys, %d for slots", q.Waiting, q.Pending),
				Cost:  costOfNoServer(q.Waiting), Remedy: "resume the queue",
				Command: "railtoken unpause " + q.Name,
			})
		case f.refusesHeartbeats() || q.Served:
		case f.Servings == 0:
			names = append(names, q.Name)
			waiting, pending = waiting+q.Waiting, pending+q.Pending
		default:
			all = append(all, Finding{
				Where: "queue " + q.Name,
				What:  fmt.Sprintf("no server works on it, and %d of its tasks wait for keys, %d for slots", q.Waiting, q.Pending),
				Cost:  costOfNoServer(q.Waiting),
				Remedy: "start a worker that serves the queue (RAILTOKEN_QUEUES); or, if its tasks are not needed any more, delete " +
					"the queue and them",
			})
		}
	}
	if len(names) > 0 {
		all = append(all, Finding{
			Where: "queues " + strings.Join(names, ", "),
			What:  fmt.Sprintf("no worker is running, and %d of their tasks wait for keys, %d for slots", waiting, pending),
			Cost:  "they do not run", Remedy: "start the workers",
		})
	}
	return all
}

// inLanes returns what is wrong with the lanes of a queue.
func inLanes(q folded) (all []Finding) {
	if q.Halted > 0 {
		all = append(all, Finding{
			Where:  "queue " + q.Name,
			What:   fmt.Sprintf("%d of the queue and its %d lanes in use are paused, and the others are not", q.Halted, q.Lanes),
			Cost:   "the tasks of some keys do not run",
			Remedy: "pause the queue in all of its lanes (railtoken pause " + q.Name + "), or in none (railtoken unpause " + q.Name + ")",
		})
	}
	if q.Taken > 0 {
		all = append(all, Finding{
			Where:   "queue " + q.Name,
			What:    fmt.Sprintf("a move into lanes has taken %d tasks, and has not put them into their lanes", q.Taken),
			Cost:    "unless the move is under way, they do not run",
			Remedy:  "move again: it begins with these tasks",
			Command: "railtoken lanes move --queue " + quoted(q.Name),
		})
	}
	return all
}

// costOfNoServer is the cost of a queue whose tasks do not run, of which some wait for keys.
func costOfNoServer(waiting int) string {
	if waiting == 0 {
		return "they do not run"
	}
	return "they do not run; later tasks of the same keys overtake them, or wait behind them if the tasks run in order"
}

func stuck(f Facts) (all []Finding) {
	if f.refusesHeartbeats() {
		return nil
	}
	for _, a := range f.Active {
		late, silent := f.At.Sub(a.Lease), asynqwire.Silence(a.Lease, f.At)
		finding := Finding{Where: "task " + a.Task.String()}
		switch {
		case a.Lease.IsZero():
			finding.What = "it is active without a lease, so asynq never brings it back"
			finding.Cost = costOfStuck
			finding.Remedy = "make sure that a server works on its queue: one with attach.Recovery takes it back within half a minute, and " +
				"any other once it has a lease that has ended"
			finding.Command = fmt.Sprintf("ZADD %s 0 %s", asynqwire.Lease(a.Task.Queue), a.Task.ID)
		case late > lateActive:
			finding.What = fmt.Sprintf("it is active, and asynq's lease on it ended %v ago", late.Round(time.Second))
			finding.Cost = costOfStuck
			finding.Remedy = "make sure that a server works on its queue: it recovers tasks whose leases have ended"
		case late > 0:
			finding.What = fmt.Sprintf("it is active, and its worker has not renewed asynq's lease, which ended %v ago: it has died, or "+
				"stood still", late.Round(time.Second))
			finding.Cost = "its run counts as failed, unless another worker takes it back before (attach.Recovery); the tasks behind it in " +
				"a sequence wait"
			finding.Remedy = "wait: a running server of its queue brings it back within two minutes of the end of the lease"
			finding.Command = "railtoken explain " + a.Task.String()
		case silent > asynqwire.SilentAfter:
			finding.What = fmt.Sprintf("it is active, and its worker has not been heard of for %v", silent.Round(time.Second))
			finding.Cost = "its slot and its keys stay taken until asynq's lease and the locks have ended"
			finding.Remedy = "see whether that process is stopped, has lost its network or has died: a running server brings the task back"
			finding.Command = "railtoken explain " + a.Task.String()
		case a.Deaths > 1:
			finding.What = fmt.Sprintf("it runs, and %d of its last runs have ended because its worker died or stood still", a.Deaths)
			finding.Cost = "such a run may end the other tasks of its worker, too; the third one in a row counts as failed, unless " +
				"attach.Recovery.Deaths says otherwise"
			finding.Remedy = "see whether the task kills its workers, by memory for example, and if so cancel it"
			finding.Command = "railtoken cancel " + a.Task.String() + " --why REASON"
			all = append(all, finding)
			continue
		default:
			continue
		}
		if key, ok := f.heldBy(a.Task); ok && !a.Lease.IsZero() {
			finding.Key = key
			finding.Remedy += "; if the tasks that wait for its key cannot wait for that, take the key away"
			finding.Command = "railtoken depose " + quoted(key) + " --why REASON"
		}
		all = append(all, finding)
	}
	return all
}

// costOfStuck is the cost of a task that nobody brings back.
const costOfStuck = "it does not run, and its uniqueness lock and its place in a sequence stay"

// heldBy returns a key that a task holds while others wait for it, by the label of the lock, which ends with the task's ID.
func (f *Facts) heldBy(t delayqueue.Task) (key string, ok bool) {
	for _, h := range f.Held {
		if strings.HasSuffix(h.Label, "/"+t.ID) {
			return h.Key, true
		}
	}
	return "", false
}

func orphans(f Facts) (all []Finding) {
	for _, k := range f.Keys {
		if len(k.Gone) > 0 {
			all = append(all, Finding{
				Where: "key " + k.Name, Key: k.Name,
				What:    fmt.Sprintf("%d of its waiters are entries without a task, such as %s", len(k.Gone), k.Gone[0]),
				Cost:    "each costs a wake a step, and counts towards limits on waiters",
				Remedy:  "wakes remove them; one by hand does so now. Delete tasks by railtoken drop, not by hand",
				Command: "railtoken wake " + quoted(k.Name),
			})
		}
	}
	if len(f.Lost) > 0 {
		all = append(all, Finding{
			Where:   f.index(f.Lost[0].Queue),
			What:    fmt.Sprintf("%d entries of the index have no task, such as %s", len(f.Lost), f.Lost[0]),
			Cost:    "they count towards the limit on all waiting tasks",
			Remedy:  "remove them; tasks at that limit do so, a few at a time",
			Command: "ZREM " + f.index(f.Lost[0].Queue) + " " + quoted(entryOf(f.Lost[0])),
		})
	}
	return all
}

func mixedOrders(f Facts) (all []Finding) {
	for _, k := range f.Keys {
		if k.Ordered > 0 && len(k.Unordered) > 0 {
			all = append(all, Finding{
				Where: "key " + k.Name, Key: k.Name,
				What: fmt.Sprintf("%d tasks keep its order, and %d wait without one, such as %s", k.Ordered,
					len(k.Unordered), k.Unordered[0]),
				Cost:   "tasks without an order overtake the others, so the order that was promised does not hold",
				Remedy: "give all handlers of the key the same Order (Requeue, RAILTOKEN_STRATEGY)",
			})
		}
	}
	return all
}

func oldestWait(f Facts) []Finding {
	if len(f.Waits) == 0 {
		return nil
	}
	oldest := slices.MinFunc(f.Waits, func(a, b Wait) int { return a.Since.Compare(b.Since) })
	late := 0
	for _, w := range f.Waits {
		if f.At.Sub(w.Since) > f.Settings.MaxWait {
			late++
		}
	}
	var all []Finding
	if late > 0 {
		all = append(all, Finding{
			Where: "task " + oldest.Task.String(), Key: oldest.Key,
			What: fmt.Sprintf("it has waited for key %s for %v, and %d tasks for more than %v",
				quoted(oldest.Key), f.At.Sub(oldest.Since).Round(time.Second), late, f.Settings.MaxWait),
			Cost:    "work is late, and tasks with a deadline or a limit on age will be archived",
			Remedy:  "see what holds it up",
			Command: "railtoken explain " + oldest.Task.String(),
		})
	}
	for _, w := range f.Waits {
		if !w.Deadline.IsZero() && f.At.Sub(w.Since) > w.Deadline.Sub(w.Since)/2 {
			all = append(all, Finding{
				Where: "task " + w.Task.String(), Key: w.Key,
				What: fmt.Sprintf("it has used up half of the time until its deadline by waiting for key %s",
					quoted(w.Key)),
				Cost: "after its deadline asynq does not run it", Remedy: "see what holds it up, or let it run next",
				Command: "railtoken put-first " + w.Task.String(),
			})
		}
	}
	return all
}

func timeouts(f Facts) (all []Finding) {
	types := map[string]string{}
	for _, w := range f.Waits {
		if w.Timeout == defaultTimeout {
			types[w.Type] = w.Task.String()
		}
	}
	for _, a := range f.Active {
		if a.Keyed && a.Timeout == defaultTimeout {
			types[a.Type] = a.Task.String()
		}
	}
	for _, name := range slices.Sorted(maps.Keys(types)) {
		all = append(all, Finding{
			Advice: true, Where: "type " + name,
			What:   "its tasks, such as " + types[name] + ", have no timeout of their own: asynq gives them 30 min",
			Cost:   "a handler that hangs holds its keys for half an hour",
			Remedy: "enqueue them with asynq.Timeout, a few times of what they need",
		})
	}
	return all
}

func hotSlot(f Facts) (all []Finding) {
	total := 0
	for _, s := range f.Slots {
		total += s.Tasks
	}
	for slot, s := range f.Slots {
		if s.Tasks >= fewTasks && float64(s.Tasks) > hotShare*float64(total) {
			all = append(all, Finding{
				Where: fmt.Sprintf("slot %d", slot),
				What: fmt.Sprintf("%d of %d waiting and pending tasks are in it, most of them of %s",
					s.Tasks, total, s.What),
				Cost:   "one master does their work while the others are idle",
				Remedy: "divide the queue into several, or lock a narrower key",
			})
		}
	}
	return all
}
