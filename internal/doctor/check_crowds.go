package doctor

import (
	"fmt"
	"time"
)

// fewWaiters is how many waiting tasks are no crowd, however slowly they run.
const fewWaiters = 10

// behindFailed reports keys whose tasks wait in order for a task that has failed, and runs again only after a while.
func behindFailed(f Facts) (all []Finding) {
	for _, b := range f.Behind {
		again := b.Next.Sub(f.At)
		if again <= f.Settings.LongRun {
			continue
		}
		all = append(all, Finding{
			Where: "key " + b.Key, Key: b.Key,
			What: fmt.Sprintf("task %s has failed and runs again in %s; %s for it. Its error: %s", b.Head, roughly(again),
				tasksWait(b.Waiting), b.LastErr),
			Cost:    "they run only when it has succeeded, is archived or is deleted",
			Remedy:  "repair what makes it fail; if it is not needed, delete it, and the next one runs",
			Command: "railtoken drop " + quoted(b.Head.String()),
		})
	}
	return all
}

// crowds reports keys for which more tasks wait than can run within the time that a task may wait.
func crowds(f Facts) (all []Finding) {
	for _, c := range f.Crowds {
		if c.Waiting < fewWaiters || c.PerMinute <= 0 {
			continue
		}
		last := time.Duration(float64(c.Waiting) / c.PerMinute * float64(time.Minute))
		if last <= f.Settings.MaxWait {
			continue
		}
		remedy := "shorten the part of the handler that needs the key, or divide the key into narrower ones"
		if !c.Ordered {
			remedy += "; let urgent tasks run first: railtoken put-first"
		}
		all = append(all, Finding{
			Where: "key " + c.Key, Key: c.Key,
			What: fmt.Sprintf("%s, and about %.0f of them run per minute, so the last starts in about %s", tasksWait(c.Waiting),
				max(c.PerMinute, 1), roughly(last)),
			Cost: "work is late", Remedy: remedy, Command: "railtoken waiters " + quoted(c.Key),
		})
	}
	return all
}

// tasksWait counts waiting tasks.
func tasksWait(n int) string {
	if n == 1 {
		return "one task waits"
	}
	return fmt.Sprintf("%d tasks wait", n)
}

// roughly returns a time in minutes, if it is long, or in seconds.
func roughly(d time.Duration) string {
	if d < 2*time.Minute {
		return d.Round(time.Second).String()
	}
	return fmt.Sprintf("%.0f min", d.Minutes())
}
