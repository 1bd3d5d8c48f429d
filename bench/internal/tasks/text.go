package tasks

import (
	"fmt"
	"slices"
)

// contendedText introduces the contended tables.
func contendedText() string {
	return fmt.Sprintf(`Tasks that want the same keys are in asynq's queues before the workers start; the makespan is the time until the last one is done. Work is to
wait, so the processors are free for the overhead. Every contestant has %d slots, except that bare has as many slots as there are keys, at most %d:
it can do no more at a time than one task for each key, but it takes them as they come, so that tasks of one key overlap. The ideal is the
work of the busiest key, or all work spread over the slots when that is more. In %s bare may be quicker than the ideal: it works on the
same key many times at once.

All have the same intervals: an idle server looks for tasks each 50 ms and for delayed ones each second, where asynq's own defaults
are 1 s and 5 s, which would slow the patterns written by hand down. Those that leave waiting to asynq retry after a second; asynq's own
default begins with some ten seconds.

%s
With `+"`FailFast{Outcome: Retry}`"+` asynq counts a failure and retries, as in `+"`asynq retry`"+`; that is not measured once more.

x/rate itself cannot be linked: its only release is of 2021 and panics with asynq v0.26, whose Redis client is a newer one. The
semaphore here is the pattern of its documentation, written anew.

- **%s**: how often a worker took a task up; more than one are in vain. **%s** is the share of the tasks that were taken up
  twice at most.
- **%s**: what a run sends to Redis beyond as many tasks without conflicts, for each time that a task was parked. The latter is **%s**, measured once. Attempts
  in the slot and looks at empty queues are among them: where hardly any task is parked it says little, and it is not judged below %.2f
  parked for each task.
- A contestant that is not through in time is marked with a makespan of more than that time; its rates are of what was done until then, which
  flatters it, as tasks that are easy to get come first. Those that wait for asynq's timer are watched for a second more than the ideal
  takes, but 2.5 to 3.5 s in all, the others for three times the ideal and 3 s.
- **%s** is the throughput of railtoken with its default strategy over that of the row; above 1 we are ahead.
- Overlaps and lost tasks are the sums of all rounds, in brackets where no lock is claimed. Lost is a task that nobody will do any more.
`, Slots, Slots, "`sellers`", list(slices.Concat([]Contestant{Bare}, Ours, ByHand)...), "runs", colTwice, colPerConflict, colPerAlone, enough, colOurs)
}
