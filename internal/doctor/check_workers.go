package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// maxHold reports keys that are held for nearly as long as a lease can be renewed.
func maxHold(f Facts) (all []Finding) {
	for _, h := range f.Holds {
		if held := f.At.Sub(h.Since); held > f.Settings.MaxHold*8/10 {
			all = append(all, Finding{
				Where: "key " + h.Key, Key: h.Key,
				What: fmt.Sprintf("task %s (%s) has held it for %v, and MaxHold is %v", h.Task, h.Type,
					held.Round(time.Second), f.Settings.MaxHold),
				Cost:   "the lease ends at MaxHold: the handler's context is cancelled, and its work is done again",
				Remedy: "raise MaxHold (RAILTOKEN_MAX_HOLD) above the longest run, or divide the work into items",
			})
		}
	}
	return all
}

// ttl reports locks that have not been renewed for long: a lease is renewed after a third of its TTL at the latest. TTLs
// of single handlers are not known.
func ttl(f Facts) (all []Finding) {
	if slices.ContainsFunc(f.Servers, func(s Server) bool { return s.Locks && s.Refuses != nil }) {
		return nil // nothing can be renewed, and that is reported
	}
	for _, h := range f.Holds {
		if h.Remaining > 0 && h.Remaining < f.Settings.TTL/10 {
			all = append(all, Finding{
				Where: "key " + h.Key, Key: h.Key,
				What: fmt.Sprintf("its lock ends in %v, and should have been renewed long ago: the TTL is %v",
					h.Remaining.Round(time.Millisecond),
					f.Settings.TTL),
				Cost: "the lease of task " + h.Task + " is lost in a moment, and its work is done again",
				Remedy: "see why " + h.Worker + " cannot renew (pauses, CPU, network); a longer TTL " +
					"(RAILTOKEN_LOCK_TTL) bears longer pauses",
			})
		}
	}
	return all
}

func workers(f Facts) []Finding {
	all := differ(f.Workers, "workers have different versions of railtoken",
		"a release may change what is stored: old and new workers must not stay together", "finish the rollout",
		func(w Worker) string { return w.Version })
	all = append(all, differ(f.Workers, "workers have their locks in different places",
		"if their tasks have a key in common, two of them can hold it at the same time, one in each place",
		"give all workers with a key in common the same lock servers: LockRedis of package worker, Locker of package attach",
		func(w Worker) string { return w.Store })...)
	byQueues := map[string][]Worker{}
	for _, w := range f.Workers {
		byQueues[w.Queues] = append(byQueues[w.Queues], w)
	}
	for _, queues := range slices.Sorted(maps.Keys(byQueues)) {
		all = append(all, differ(byQueues[queues], "workers of queue "+queues+" have different configurations",
			"tasks are treated differently by the worker that happens to take them",
			"give them the same RAILTOKEN_* variables and options", func(w Worker) string { return w.Fingerprint })...)
	}
	return all
}

// differ returns a finding if workers differ in a value.
func differ(workers []Worker, what, cost, remedy string, value func(Worker) string) []Finding {
	names := map[string][]string{}
	for _, w := range workers {
		if v := value(w); v != "" {
			names[v] = append(names[v], w.Name)
		}
	}
	if len(names) < 2 {
		return nil
	}
	var parts []string
	for _, v := range slices.Sorted(maps.Keys(names)) {
		slices.Sort(names[v])
		parts = append(parts, v+": "+strings.Join(slices.Compact(names[v]), ", "))
	}
	return []Finding{{
		Where: "workers", What: what + " (" + strings.Join(parts, "; ") + ")", Cost: cost, Remedy: remedy,
		Command: "railtoken workers",
	}}
}
