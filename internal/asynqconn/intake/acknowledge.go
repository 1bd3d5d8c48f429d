package intake

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/railtoken/railtoken/internal/pipeline"
)

// Acknowledgement is asynq's end of a run.
type Acknowledgement struct {
	Queue, ID string
	Text      string // of asynq's script; "" when it is not known yet
	Keys      []string
	Args      []any
}

// End notes that a run ends whose acknowledgement the caller sends by itself.
func (in *Intake) End(queue, id string) { in.slots.end(name{queue, id}) }

// Knows reports whether Acknowledge would end a run.
func (in *Intake) Knows(queue, id string) bool { return in.oneNode && in.slots.has(name{queue, id}) }

// Acknowledge ends a run, if the task is still in it, and takes tasks for the slots that are free then. ok is false when
// nothing was sent: the run is not one of this Intake, or the queues are on several nodes.
func (in *Intake) Acknowledge(ctx context.Context, a Acknowledgement) (ok bool, err error) {
	run, known := in.slots.end(name{a.Queue, a.ID})
	if !known || !in.oneNode || a.Text == "" {
		return false, nil
	}
	at := slices.Index(a.Keys, "asynq:{"+a.Queue+"}:t:"+a.ID)
	if at < 0 {
		return false, nil
	}
	if !in.begin(false) {
		return false, nil
	}
	defer in.end()
	n := 0
	if !in.quiet.Load() && !in.isStopping() {
		n = in.slots.ask(0)
	}
	var names []string
	if n > 0 {
		names = in.order.names
	}
	call := rand.Text()
	keys := slices.Concat(a.Keys, keysOf(names))
	args := make([]any, 0, len(a.Args)+8+n)
	args = append(args, a.Args...)
	args = append(args, at+1, run, call, n, leaseEnd(), 0)
	args = in.orders(args, n)
	args = append(args, len(a.Keys), len(a.Args))
	script := ackScript(a.Text)
	tasks, live, err := in.run(ctx, script, keys, args, names, 1)
	if !unanswered(err) {
		in.came(n, tasks)
		if err == nil && !live {
			err = errNotFound
		}
		return true, err
	}
	args[len(a.Args)+5] = 1
	if in.repeat(func(ctx context.Context) error {
		args[len(a.Args)+4] = leaseEnd()
		tasks, _, err := in.run(ctx, script, keys, args, names, 1)
		if !passes(err) {
			in.came(n, tasks)
			err = nil
		}
		return err
	}) {
		return true, nil
	}
	in.slots.answered(n, nil, time.Time{})
	return true, err
}

// ackScript returns the script that has an acknowledgement of asynq in it.
func ackScript(text string) *pipeline.Script {
	known, ok := ackScripts.Load(text)
	if !ok {
		source := grantSource + strings.Replace(ackSource, "--SCRIPT--", text, 1)
		known, _ = ackScripts.LoadOrStore(text, pipeline.NewScript(source))
	}
	script, _ := known.(*pipeline.Script)
	return script
}

// errNotFound is what asynq's own scripts answer when the run of a task is another's by now.
var errNotFound = errors.New("NOT FOUND")
