package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/broker/intake"
	"github.com/railtoken/railtoken/internal/ends"
)

// acknowledgement reads the keys and arguments of a script that ends a run. ok is false when they are not as the script
// needs them.
func acknowledgement(script string, keys []string, args []any) (a Acknowledgement, ok bool) {
	a.Script = script
	var pending bool
	for _, key := range keys {
		if queue, id, isTask := asynqwire.TaskAt(key); isTask { // archive names the prefix of all tasks too
			a.Queue, a.ID, ok = queue, id, true
		}
		pending = pending || asynqwire.Is(key, "pending")
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
		a.Counted = script == "retry" && fmt.Sprint(args[4]) == "true"
		if script == "archive" {
			a.Message, a.ArchivedAt = textOf(args[1]), textOf(args[2])
		}
	case "markAsComplete", "markAsCompleteUnique":
		if len(args) < 4 {
			return a, false
		}
		a.Message = textOf(args[3])
	}
	return a, ok
}

// textOf returns an argument of a script as Redis gets it.
func textOf(arg any) string {
	if bytes, ok := arg.([]byte); ok {
		return string(bytes)
	}
	return fmt.Sprint(arg)
}

// doneScript ends the run of a task that is then deleted. Nearly every acknowledgement is this one.
const doneScript = "done"

// texts has asynq's scripts that end a run by their SHA-1, once go-redis has sent their texts.
var texts sync.Map

// acknowledge ends a run: Tasks may answer, else the next tasks are fetched with it, or asynq's script is sent alone.
// text is that of the script if go-redis sends it, and empty otherwise.
//
// That the run is over already is no error: asynq would repeat the acknowledgement seconds later, and might end a run
// that the task has begun on another server by then.
func (c *Conn) acknowledge(ctx context.Context, text, sum string, keys []string, args []any,
	send func(context.Context) *redis.Cmd,
) *redis.Cmd {
	repeated := ctx.Err() != nil
	if repeated {
		fresh, cancel := uncancelled(ctx)
		defer cancel()
		ctx = fresh
	}
	name := scripts[sum]
	a, ok := acknowledgement(name, keys, args)
	a.Repeated = repeated
	if ok && !repeated {
		defer c.intake.Acknowledging(a.Queue, a.ID)()
	}
	if text != "" {
		texts.LoadOrStore(sum, text)
	}
	known, _ := texts.Load(sum)
	script, _ := known.(string)
	switch {
	case repeated:
		a.Run = c.unended.take(a.Queue, a.ID)
	case ok:
		a.Run = c.intake.Run(a.Queue, a.ID)
	}
	run := a.Run
	if name != "" && script == "" && run != "" { // go-redis sends it next; Recognise has had it sent before
		c.resent.add(a.Queue, a.ID)
		if repeated {
			c.unended.put(a.Queue, a.ID, run)
		}
		return answer(ctx, sum, noScriptError{})
	}
	end := intake.Acknowledgement{Queue: a.Queue, ID: a.ID, Text: script, Done: name == doneScript, Keys: keys, Args: args}
	var lost, ended func() // lost lets the task run again
	released := false
	if ok && (a.Ends() || run != "") && script != "" {
		send = c.ending(&end, run, keys, args)
	}
	unasked := ok && c.resent.remove(a.Queue, a.ID)
	cmd := OnceSettled(ctx, settleLimit, func() *redis.Cmd {
		if !ok {
			return send(ctx)
		}
		// Once, and also of an asynq that is not known: a run that began here ends here.
		if c.tasks != nil && (text == "" || unasked) {
			if end.Release == nil {
				if end.Release, lost = c.tasks.Release(a); end.Release != nil && !end.Release.Scripted() {
					end.Release.Run(ctx, false)
					end.Release = nil
				}
			}
			if end.Ending == nil && a.Ends() {
				end.Ending = c.tasks.Ending(a)
			}
			var answered bool
			var err error
			if answered, ended, err = c.tasks.Acknowledge(ctx, a); answered {
				c.intake.End(a.Queue, a.ID)
				return answer(ctx, sum, err)
			}
		}
		if name == "" || repeated || a.Requeues() {
			c.intake.End(a.Queue, a.ID)
			cmd := send(ctx)
			if a.Requeues() && cmd.Err() == nil {
				c.announce(ctx, a.Queue)
			}
			return cmd
		}
		if done, err := c.intake.Acknowledge(ctx, end); done {
			released = true
			if errors.Is(err, intake.ErrLost) {
				lost()
				err = nil
			}
			return answer(ctx, sum, err)
		}
		return send(ctx)
	})
	if end.Release != nil && !released {
		end.Release.Run(ctx, false)
	}
	if ended != nil {
		ended()
	}
	err := cmd.Err()
	switch {
	case err == nil:
	case name != "" && strings.HasPrefix(err.Error(), "NOT FOUND"):
		return answer(ctx, sum, nil)
	case run != "": // asynq repeats it
		c.unended.put(a.Queue, a.ID, run)
	}
	return cmd
}

// ending sends the script that ends a run, where no tasks are fetched with it, with the mark of the end of the task, and the notice for
// those who wait for it.
func (c *Conn) ending(end *intake.Acknowledgement, run string, keys []string, args []any) func(context.Context) *redis.Cmd {
	return func(ctx context.Context) *redis.Cmd {
		at := slices.Index(keys, asynqwire.Hash(end.Queue, end.ID))
		keys, args := end.Ending.Arguments(keys, args, at, run)
		cmd := ends.Script(end.Text).Run(ctx, c.UniversalClient, keys, args...)
		if cmd.Err() == nil && end.Ending != nil {
			end.Ending.Told()
		}
		return cmd
	}
}

// ackTimeout limits sending an acknowledgement whose context has ended.
const ackTimeout = 5 * time.Second

// uncancelled returns a context without the cancellation of ctx. It ends after ackTimeout, or at the deadline of ctx.
//
// asynq v0.26 repeats a failed acknowledgement with a context that it has cancelled since, so the repetition never
// succeeds, and a task that is done runs again. The context's deadline is the end of asynq's lease; after that another
// worker may have the task.
func uncancelled(ctx context.Context) (context.Context, context.CancelFunc) {
	end := time.Now().Add(ackTimeout)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(end) {
		end = deadline
	}
	return context.WithDeadline(context.WithoutCancel(ctx), end)
}
