package doctor

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/holdings"
	"github.com/railtoken/railtoken/internal/line"
)

// mostLooks limits how many locks are looked at: those that have been held longest.
const mostLooks = 20

// gatherReports reads the reports of the workers, and the locks that they have held longest.
func (f *Facts) gatherReports(ctx context.Context, i *inspect.Inspector) error {
	workers, err := i.Workers(ctx)
	if err != nil {
		return err
	}
	for _, w := range workers {
		name := w.Host + "/" + strconv.Itoa(w.PID)
		f.Workers = append(f.Workers, Worker{
			ID: w.ID, Name: name, Version: w.Version, Fingerprint: w.Config, Queues: queuesOf(w), Store: w.Store,
		})
		for _, h := range w.Held {
			f.Holds = append(f.Holds, Hold{
				Key: h.Key, Task: h.Task.String(), Type: h.Type, Worker: name,
				Since: h.Since,
			})
		}
	}
	slices.SortStableFunc(f.Holds, func(a, b Hold) int {
		return cmp.Or(a.Since.Compare(b.Since),
			cmp.Compare(a.Key, b.Key))
	})
	for n := range min(len(f.Holds), mostLooks) {
		k, err := i.Look(ctx, f.Holds[n].Key, 0)
		if err != nil {
			return err
		}
		if k.Holder != nil && k.Holder.Task != nil && k.Holder.Task.Task.String() == f.Holds[n].Task {
			f.Holds[n].Remaining = k.Holder.Remaining
		}
	}
	return nil
}

// errPlaceless is why workers are not compared.
var errPlaceless = errors.New("whether all workers have their locks in one place is not known, because these do not tell " +
	"where theirs are: have their Locker implement backend.Identified, and see whether their lock servers answer")

// placeless returns the names of workers that cannot be compared with the others, if there are any, and why.
func (f *Facts) placeless() (names string, err error) {
	var all []string
	for _, w := range f.Workers {
		if w.Store == "" {
			all = append(all, w.Name)
			err = errPlaceless
		}
	}
	if len(f.Workers) < 2 {
		return "", nil
	}
	return strings.Join(all, ", "), err
}

const (
	// mostHeads is how many tasks of a sequence are looked at for its head: those before it have ended.
	mostHeads = 10
	// paceMinutes is how many whole minutes tell how fast the tasks of a key run.
	paceMinutes = 3
)

// gatherHeld looks who holds the keys with most waiting tasks, and what the heads of their sequences do.
func (f *Facts) gatherHeld(ctx context.Context, i *inspect.Inspector) error {
	waiting := map[string]int{}
	for _, w := range f.Waits {
		waiting[w.Key]++
	}
	names := slices.SortedFunc(maps.Keys(waiting), func(a, b string) int {
		return cmp.Or(waiting[b]-waiting[a], cmp.Compare(a, b))
	})
	for _, name := range names[:min(len(names), mostLooks)] {
		k, err := i.Look(ctx, name, mostHeads)
		if err != nil {
			return err
		}
		if k.Waiting == 0 {
			continue
		}
		f.Crowds = append(f.Crowds, Crowd{Key: name, Waiting: k.Waiting, Ordered: len(k.Sequence) > 0})
		if head := k.Head(); head != nil && head.Failed {
			f.Behind = append(f.Behind, Behind{name, k.Waiting, head.Task, "", head.Next})
		}
		if k.Holder == nil {
			continue
		}
		h := Held{Key: name, Waiting: k.Waiting, By: k.Holder.Label, Label: k.Holder.Label, Since: k.Holder.Since}
		if task := k.Holder.Task; task != nil {
			h.By, h.Worker = "task "+task.Task.String()+" ("+task.Type+")", task.Host+"/"+strconv.Itoa(task.PID)
		}
		f.Held = append(f.Held, h)
	}
	return nil
}

// gatherPaces reads the errors of heads, and from the history how fast the tasks of the keys run.
func (f *Facts) gatherPaces(ctx context.Context, client redis.UniversalClient) error {
	if err := pipelined(ctx, client, f.Behind, func(p redis.Pipeliner, b *Behind) *redis.StringCmd {
		return p.HGet(ctx, line.Task(b.Head).Hash(), asynqwire.MessageField)
	}, func(b *Behind, msg *redis.StringCmd) { b.LastErr = asynqwire.ReadMessage(msg.Val()).LastErr }); err != nil {
		return err
	}
	if !slices.ContainsFunc(f.Crowds, func(c Crowd) bool { return c.Waiting >= fewWaiters }) {
		return nil
	}
	history, err := holdings.ReadHistory(ctx, client, f.At, paceMinutes+2)
	if err != nil {
		return err
	}
	for n := range f.Crowds {
		c, minutes, holds := &f.Crowds[n], 0, 0
		for m := range paceMinutes {
			// Holds count only once a task has waited for the key, so a minute counts if one has waited before.
			before, _ := history[m].Of(c.Key)
			if p, ok := history[m+1].Of(c.Key); ok && before.Waiting > 0 && p.Holds >= 0 {
				minutes, holds = minutes+1, holds+p.Holds
			}
		}
		if minutes > 0 {
			c.PerMinute = float64(holds) / float64(minutes)
		}
	}
	return nil
}

// queuesOf returns what a worker serves, as text.
func queuesOf(w inspect.Worker) string {
	names := make([]string, 0, len(w.Queues))
	for name := range w.Queues {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}
