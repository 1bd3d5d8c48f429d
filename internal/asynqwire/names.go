package asynqwire

import "strings"

// The names of what asynq keeps in Redis (v0.25 and v0.26). No other Go file spells them.
const (
	Namespace     = "asynq:"        // begins each name
	Queues        = "asynq:queues"  // the set of all queues
	ServersKey    = "asynq:servers" // the sorted set of the servers by the time until which they count as alive
	WorkersKey    = "asynq:workers" // the same of what they run
	CancelChannel = "asynq:cancel"

	queueOpen = Namespace + "{"
	queueEnd  = "}:"
	hashPart  = "t:"
)

// The fields of a task's hash.
const (
	MessageField      = "msg"
	StateField        = "state"
	PendingSinceField = "pending_since" // while it is pending
	UniqueField       = "unique_key"    // of a unique task
	ResultField       = "result"        // once its handler has written one
)

// Prefix begins the names of a queue's keys, such as "asynq:{default}:".
func Prefix(queue string) string { return queueOpen + queue + queueEnd }

// Pending returns the key of the list of a queue's pending tasks.
func Pending(queue string) string { return Prefix(queue) + "pending" }

// Active returns the key of the list of a queue's running tasks.
func Active(queue string) string { return Prefix(queue) + "active" }

// Lease returns the key of the sorted set of a queue's running tasks by the ends of their leases.
func Lease(queue string) string { return Prefix(queue) + "lease" }

// Retry returns the key of the sorted set of a queue's tasks that wait for their next run, by its time.
func Retry(queue string) string { return Prefix(queue) + "retry" }

// Scheduled returns the key of the sorted set of a queue's tasks that are not due yet, by their time.
func Scheduled(queue string) string { return Prefix(queue) + "scheduled" }

// Completed returns the key of the sorted set of a queue's completed tasks that are retained.
func Completed(queue string) string { return Prefix(queue) + "completed" }

// Archived returns the key of the sorted set of a queue's archived tasks.
func Archived(queue string) string { return Prefix(queue) + "archived" }

// Set returns the key of the list or the sorted set of a queue in which tasks in this state are, such as "pending".
func Set(queue, state string) string { return Prefix(queue) + state }

// Paused returns the key that exists while a queue is paused.
func Paused(queue string) string { return Prefix(queue) + "paused" }

// Mark returns a key beside those of a queue, in which workers say that their own keys have a namespace. asynq ignores it.
func Mark(queue string) string { return Prefix(queue) + "railtoken" }

// Hash returns the key of a task.
func Hash(queue, id string) string { return queueOpen + queue + queueEnd + hashPart + id }

// IsOfQueue reports whether a key belongs to a queue.
func IsOfQueue(key string) bool { return strings.HasPrefix(key, queueOpen) }

// Is reports whether a key of a queue is of this kind, such as "pending".
func Is(key, kind string) bool { return strings.HasSuffix(key, queueEnd+kind) }

// QueueOf returns the queue of a key of this kind, such as "pending".
func QueueOf(key, kind string) (queue string, ok bool) {
	queue, ofQueue := strings.CutPrefix(key, queueOpen)
	queue, ofKind := strings.CutSuffix(queue, queueEnd+kind)
	return queue, ofQueue && ofKind
}

// QueueIn returns the queue that a key belongs to.
func QueueIn(key string) (queue string, ok bool) {
	queue, ofQueue := strings.CutPrefix(key, queueOpen)
	queue, _, ended := strings.Cut(queue, queueEnd)
	return queue, ofQueue && ended
}

// TaskAt returns the queue and the ID of the task with this key. ok is false for the prefix of all tasks.
func TaskAt(key string) (queue, id string, ok bool) {
	queue, id, _ = strings.Cut(key, queueEnd+hashPart)
	queue, ok = strings.CutPrefix(queue, queueOpen)
	return queue, id, ok && id != ""
}
