package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// noHandler is what asynq's mux says of a task whose type has no handler.
const noHandler = "handler not found for task"

// held reports keys that are held for long while tasks wait for them.
func held(f Facts) (all []Finding) {
	for _, h := range f.Held {
		since := f.At.Sub(h.Since)
		if h.Since.IsZero() || since <= f.Settings.LongRun {
			continue
		}
		by, remedy := h.By, "if it hangs, take the key away; otherwise lock it for a shorter part of the work"
		if h.Worker != "" {
			by += " in worker " + h.Worker
		} else {
			remedy = "no worker reports it: see whether its process hangs. " + remedy
		}
		all = append(all, Finding{
			Where: "key " + h.Key, Key: h.Key,
			What:   fmt.Sprintf("%s has held it for %v, and %s for it", by, since.Round(time.Second), tasksWait(h.Waiting)),
			Cost:   "they run only when it is released",
			Remedy: remedy, Command: "railtoken depose " + quoted(h.Key) + " --why REASON",
		})
	}
	return all
}

// slots reports servers in which no slot has become free for long while tasks wait for one.
func slots(f Facts) (all []Finding) {
	for _, s := range f.Full {
		pending := 0
		for _, q := range f.folded() {
			if s.Queues[q.Name] > 0 && !q.Paused {
				pending += q.Pending
			}
		}
		if busy := f.At.Sub(s.Last); pending > 0 && busy > f.Settings.LongRun {
			all = append(all, Finding{
				Where: "worker " + s.Name,
				What: fmt.Sprintf("none of its %d slots has become free for %v, and %d tasks wait for one; it runs %s", s.Slots,
					busy.Round(time.Second), pending, strings.Join(s.Types, ", ")),
				Cost: "its queues stand still",
				Remedy: "see what its handlers wait for (SIGQUIT prints where they are, and ends the process), and give their tasks " +
					"asynq.Timeout; if they only take long, add slots or workers",
			})
		}
	}
	return all
}

// unhandled reports types of tasks that no worker has a handler for.
func unhandled(f Facts) (all []Finding) {
	for _, u := range f.Unhandled {
		tasks := fmt.Sprintf("%d tasks, such as %s, have", u.Tasks, u.Task)
		if u.Tasks == 1 {
			tasks = fmt.Sprintf("task %s has", u.Task)
		}
		all = append(all, Finding{
			Where: "type " + u.Type,
			What:  tasks + " failed because the worker that took them has no handler for this type",
			Cost:  "each run counts as a failure; after the last retry the task is archived",
			Remedy: "register a handler for it in all workers that serve queue " + u.Task.Queue +
				", or send its tasks to a queue of their own",
		})
	}
	return all
}

// databases reports tasks in another database than the one that was asked.
func databases(f Facts) (all []Finding) {
	served := map[string]bool{}
	for _, q := range f.folded() {
		served[q.Name] = q.Served
	}
	for _, d := range f.Elsewhere {
		what := ""
		if len(f.Queues) == 0 {
			what = fmt.Sprintf("database %d has no queue of asynq, and database %d has %s", d.Here, d.Number,
				strings.Join(slices.Sorted(maps.Keys(d.Pending)), ", "))
		}
		for _, name := range slices.Sorted(maps.Keys(d.Pending)) {
			if n := d.Pending[name]; what == "" && n > 0 && d.Servers == 0 && served[name] {
				what = fmt.Sprintf("%d tasks of queue %s wait in database %d, where no server works, and the servers of that queue "+
					"are in database %d", n, name, d.Number, d.Here)
			}
		}
		if what != "" {
			all = append(all, Finding{
				Where: d.Addr, What: what,
				Cost:   "tasks in one database are not seen by workers, or by this command, in another",
				Remedy: "give clients, workers and this command the same number of the database (RAILTOKEN_REDIS_DB, --db)",
			})
		}
	}
	return all
}
