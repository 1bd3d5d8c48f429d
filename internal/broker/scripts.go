package broker

import (
	"context"
	"crypto/sha1"
	"encoding/hex"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/rediswire"
)

// Kind is what a script of asynq does with a task.
type Kind int

// The kinds that a [Conn] distinguishes.
const (
	Other   Kind = iota // anything else, of asynq or not
	Fetch               // takes a task from a queue and begins its run
	Ack                 // ends a run: done, retried, archived or put back
	Recover             // lists the tasks whose workers asynq considers dead
	Enqueue             // adds a task to a queue
	Stop                // says that a server is gone
	Beat                // says that a server is there: a part of its heartbeat
)

// scripts maps the SHA-1 of asynq v0.26.0's scripts to their names.
var scripts = map[string]string{
	"98d28b42650870a743450ffda9791e9e19c6991b": "enqueue",
	"297b3f9abfd963a3316434ef9d88fc5bf8a7ddc3": "enqueueUnique",
	"a8153319360adc71cdc370107f8ab9786f204765": "dequeue",
	"1241eaa1c73409baaf1fea0c08d203a4911bda15": "done",
	"a2631c71357a54b4c3e7450b1757e7f3f49d6c81": "doneUnique",
	"117dca952700588e559c7ace20b925096d587974": "markAsComplete",
	"ce6833ccce362a8c0ee53beee413341daf52e39c": "markAsCompleteUnique",
	"f34cbfd11d1fc8019af55b50c447fc68eb8b29e5": "requeue",
	"074af2c5a4623800684c1b0e4e328c2500f06815": "addToGroup",
	"deeb77b98fd021a8a0279d8e7dd11a8a4546611a": "addToGroupUnique",
	"8ce6b38a99b73194585c251eb3c2a89559f37a87": "schedule",
	"e9b8aa859a976a1fce09eaf723b4fccd02ba799e": "scheduleUnique",
	"65fa409c88198a681c53e0892d8276eca0145694": "retry",
	"9c3b1eb9947ce2ee5304ac013a0a365ec364fd2d": "archive",
	"522b1a6ae66fe79ea2f24a9af58798ab71879035": "forward",
	"a3812898e6caa8ef58d4cda34cd41a1023157e43": "aggregationCheck",
	"74ba718a5ed06d87a29e289ce500f34eac8759fc": "readAggregationSet",
	"f78335554f1a49a26ac08c02e9f50237e38fae18": "deleteAggregationSet",
	"7c08714194a1ed81153180b36590c51f1ccd7d42": "reclaimStateAggregationSets",
	"49c4326d80c1db9c476da2aa7f4438d03688f82b": "deleteExpiredCompletedTasks",
	"16988a462595f6ee317be300951533b004f27f5c": "listLeaseExpired",
	"3c8548ad44d0dfcfde50f07ea9271d77f656042c": "writeServerState",
	"79cf8dbc80deca37314fdfdeb9fe33a12c9baad7": "clearServerState",
	"313393fb34cf7668d3ae712d88666ce651da3861": "writeSchedulerEntries",
	"5feb3e91ca9086f0335575fa366ac2b94ec7b886": "recordSchedulerEnqueueEvent",
}

// kinds has the scripts that a Conn or an Enqueuer treats specially.
var kinds = map[string]Kind{
	"dequeue": Fetch, "listLeaseExpired": Recover, "clearServerState": Stop, "writeServerState": Beat,
	"enqueue": Enqueue, "enqueueUnique": Enqueue, "schedule": Enqueue, "scheduleUnique": Enqueue,
	"addToGroup": Enqueue, "addToGroupUnique": Enqueue,
	"done": Ack, "doneUnique": Ack, "markAsComplete": Ack, "markAsCompleteUnique": Ack,
	"requeue": Ack, "retry": Ack, "archive": Ack,
}

// forwardScript moves what is due to the queue.
const forwardScript = "forward"

// Regular returns the SHA-1 of the scripts that every server of the supported asynq runs by itself, whether there are
// tasks or not: Redis knows them while a server runs.
func Regular() (sums []string) {
	for sum, name := range scripts {
		if name == forwardScript || name == "writeServerState" {
			sums = append(sums, sum)
		}
	}
	return sums
}

// sumOf returns the SHA-1 of a script, by which Redis knows it.
func sumOf(script string) string {
	sum := sha1.Sum([]byte(script)) //nolint:gosec // see above
	return hex.EncodeToString(sum[:])
}

// KindOf returns the kind of a script, and whether it is one of the supported asynq's. Others are recognised by the
// names of their keys: asynq's scripts that begin or end a run name the active tasks and the leases of the queue, and
// the one that begins a run also checks whether the queue is paused.
func KindOf(sum string, keys []string) (kind Kind, known bool) {
	if name, ok := scripts[sum]; ok {
		return kinds[name], true
	}
	var active, lease, paused, task bool
	for _, key := range keys {
		if !asynqwire.IsOfQueue(key) {
			return Other, false
		}
		active = active || asynqwire.Is(key, "active")
		lease = lease || asynqwire.Is(key, "lease")
		_, _, isTask := asynqwire.TaskAt(key)
		task = task || isTask
		paused = paused || asynqwire.Is(key, "paused")
	}
	switch {
	case !active || !lease:
		return Other, false
	case paused:
		return Fetch, false
	case !task: // it is about the whole queue, as an Inspector's
		return Other, false
	default:
		return Ack, false
	}
}

// noScriptError makes go-redis send the text of a script.
type noScriptError struct{}

func (noScriptError) Error() string { return string(rediswire.NoScript) }

func (noScriptError) RedisError() {}

// answer returns the command that asynq gets for a script that was not sent.
func answer(ctx context.Context, sum string, err error) *redis.Cmd {
	cmd := redis.NewCmd(ctx, "evalsha", sum)
	if err != nil {
		cmd.SetErr(err)
	} else {
		cmd.SetVal("OK")
	}
	return cmd
}
