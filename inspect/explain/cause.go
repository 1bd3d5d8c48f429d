package explain

// Cause is what holds a task up, in a word that does not change between releases.
type Cause string

// The causes. Where several apply, an [Explanation] names the first of them that an operator can do something about,
// and the others in Also.
const (
	NoSuchTask    Cause = "no-such-task"         // asynq knows no such task: it has succeeded without asynq.Retention, was deleted, or never existed
	Running       Cause = "running"              // its handler runs
	Held          Cause = "held"                 // another holder has its key, and the task is the next to get it
	Behind        Cause = "behind"               // other tasks get the key before it
	BehindFailed  Cause = "behind-failed"        // the first task of its sequence has failed and will be retried
	RefusesWrites Cause = "redis-refuses-writes" // the Redis of the tasks answers, but refuses writes
	QueuePaused   Cause = "queue-paused"         // its queue is paused
	QueueUnserved Cause = "queue-unserved"       // no server works on its queue
	RetryLater    Cause = "retry-later"          // it has failed, and asynq retries it at its scheduled time
	Scheduled     Cause = "scheduled"            // its scheduled time has not come yet
	LimitReached  Cause = "limit-reached"        // it has reached a limit on waiting
	NoQuorum      Cause = "no-quorum"            // too few lock servers can be reached
	Quarantined   Cause = "quarantined"          // too few lock servers may vote: they may have forgotten locks
	InBacklog     Cause = "in-backlog"           // it waits for a free slot of a server
	KeyFree       Cause = "key-free"             // nothing is known to hold its key: it is about to be woken, or its wake was lost
	WorkerSilent  Cause = "worker-silent"        // its worker, or that of the task that holds its key, has missed its heartbeats: it is stopped, is cut off from Redis, or has died
	WorkerDied    Cause = "worker-died"          // its worker has let asynq's lease end, so it has died or stood still, and asynq has not brought the task back yet
	Archived      Cause = "archived"             // it was archived for a reason other than a limit on waiting
	Completed     Cause = "completed"            // it has succeeded, and is kept for its result
	InGroup       Cause = "in-group"             // it waits for its group to be complete
	Overdue       Cause = "overdue"              // its deadline has passed: asynq no longer runs it
	WaitsInSlot   Cause = "waits-in-a-slot"      // it occupies a slot and waits there for its key
)
