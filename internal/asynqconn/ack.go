package asynqconn

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Tasks answers for the tasks that an asynq server fetches and acknowledges.
type Tasks interface {
	// Fetched is told of each task that the server has fetched, before asynq has it.
	Fetched(t Fetched)
	// Acknowledge is asked before an acknowledgement is sent. When it answers, asynq's script is not sent, and err is
	// what asynq gets.
	Acknowledge(ctx context.Context, a Acknowledgement) (answered bool, err error)
}

// Fetched is a task that was fetched, with asynq's message of it. Run is the name of this run, which its hash has in
// the field railtoken:run until the next one begins. The rest is what its hash has noted of its waiting, empty for one
// that has never waited.
type Fetched struct {
	Queue, ID, Run, Message   string
	Retried, Conflicts, First string
	Woken                     bool
}

// Acknowledgement is what asynq does with a task whose run has ended.
type Acknowledgement struct {
	// Script is asynq's name for it: done, doneUnique, markAsComplete, markAsCompleteUnique, requeue, retry or archive.
	// Of an asynq that is not known it is requeue or empty, and there is no Message.
	Script    string
	Queue, ID string
	// Message is the task as asynq would keep it after retry and archive. Counted reports that its retry count was
	// raised: a failure.
	Message []byte
	Counted bool
	// Repeated reports that asynq has tried before, in vain as far as it knows: the task may have begun another run
	// since.
	Repeated bool
}

// Requeues reports whether asynq puts the task back, since the server shuts down.
func (a Acknowledgement) Requeues() bool { return a.Script == "requeue" }

// acknowledgement reads the keys and arguments of a script that ends a run. ok is false when they are not those of the
// script.
func acknowledgement(script string, keys []string, args []any) (a Acknowledgement, ok bool) {
	a.Script = script
	var pending bool
	for _, key := range keys {
		if queue, id, _ := strings.Cut(key, "}:t:"); id != "" { // archive names the prefix of all tasks too
			a.ID = id
			a.Queue, ok = strings.CutPrefix(queue, "asynq:{")
		}
		pending = pending || strings.HasSuffix(key, "}:pending")
	}
	switch script {
	case "":
		if pending {
			a.Script = "requeue"
		}
	case "retry", "archive":
		if len(args) < 5 {
			return a, false
		}
		var isMessage bool
		a.Message, isMessage = args[1].([]byte)
		ok = ok && isMessage
		a.Counted = script == "retry" && fmt.Sprint(args[4]) == "true"
	}
	return a, ok && a.ID != ""
}

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

// ackTimeout is what an acknowledgement gets whose context was cancelled before it was sent.
const ackTimeout = 5 * time.Second

// uncancelled returns a context without the cancellation of ctx, for at most ackTimeout and not beyond the deadline of
// ctx.
//
// asynq v0.26 sends an acknowledgement that failed again with a context that it has cancelled since, so that it never
// succeeds and a task that is done runs again. At the context's deadline asynq's lease ends, and then another worker
// may have the task.
func uncancelled(ctx context.Context) (context.Context, context.CancelFunc) {
	end := time.Now().Add(ackTimeout)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(end) {
		end = deadline
	}
	return context.WithDeadline(context.WithoutCancel(ctx), end)
}
