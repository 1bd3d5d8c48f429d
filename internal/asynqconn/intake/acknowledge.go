package intake

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/railtoken/railtoken/internal/fused"
	"github.com/railtoken/railtoken/internal/pipeline"
)

// Acknowledgement is asynq's end of a run.
type Acknowledgement struct {
	Queue, ID string
	Text      string // of asynq's script; "" when it is not known yet
	Keys      []string
	Args      []any
	// Release is the release of the task's locks, nil for none.
	Release *fused.Release
}

// End notes that a run ends whose acknowledgement the caller sends by itself.
func (in *Intake) End(queue, id string) { in.slots.end(name{queue, id}) }

// Knows reports whether Acknowledge would end a run.
func (in *Intake) Knows(queue, id string) bool { return in.oneNode && in.slots.has(name{queue, id}) }

// ackHead is how many numbers come before the tasks in the reply of an acknowledgement.
const ackHead = 4

// Values of the first number in the reply of an acknowledgement.
const (
	ackOver int64 = 0 // the run was over
	ackLost int64 = 2 // a lock was lost, and the run goes on
)

// ErrLost reports that a run was not ended, because a lock of the task was lost. Its locks were released.
var ErrLost = errors.New("asynqconn: a lock of the task was lost")

// Acknowledge ends a run, if the task is still in it, releases its locks, and takes tasks for the slots that are free
// then. ok is false when nothing was sent: the run is not one of this Intake, or the queues are on several nodes.
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
	r := reader{head: ackHead}
	if n > 0 {
		r.names, r.asking = in.order.names, in.ask()
	}
	keys, args := in.ackCall(a, at, run, n, &r)
	script := ackScript(a.Text)
	got, err := in.run(ctx, script, keys, args, r)
	if !unanswered(err) {
		released(ctx, a.Release, got, err, false)
		in.came(n, got.tasks)
		switch {
		case err == nil && got.head[0] == ackOver:
			err = errNotFound
		case err == nil && got.head[0] == ackLost:
			err = ErrLost
		}
		return true, err
	}
	args[len(a.Args)+5] = 1
	args[len(a.Args)+13] = 0 // a lock that has expired since the handler returned was not lost
	if in.repeat(func(ctx context.Context) error {
		args[len(a.Args)+4] = leaseEnd()
		got, err := in.run(ctx, script, keys, args, r)
		if passes(err) {
			return err
		}
		released(ctx, a.Release, got, err, true)
		in.came(n, got.tasks)
		return nil
	}, func() {
		in.slots.answered(n, nil, time.Time{})
		released(ctx, a.Release, got, err, true)
	}) {
		return true, nil
	}
	return true, err
}

// ackCall returns the keys and arguments of ack.lua.
func (in *Intake) ackCall(a Acknowledgement, at int, run string, n int, r *reader) (keys []string, args []any) {
	locks := a.Release
	if locks == nil {
		locks = &fused.Release{}
	}
	strict := 0
	if locks.Strict {
		strict = 1
	}
	keys = slices.Concat(a.Keys, locks.Keys)
	if n > 0 {
		keys = append(keys, in.keys...)
	}
	args = make([]any, 0, len(a.Args)+18+len(locks.Tops)+n)
	args = append(args, a.Args...)
	args = append(args, at+1, run, rand.Text(), n, leaseEnd(), 0)
	args = r.add(args)
	args = append(args, locks.Owner, strict, len(locks.Tops))
	for _, top := range locks.Tops {
		args = append(args, top)
	}
	args = in.orders(args, n)
	return keys, append(args, len(a.Keys), len(a.Args))
}

// released tells the release of a task's locks what an acknowledgement has done with them. repeated says that the
// acknowledgement was sent before: what has become of the locks since proves nothing.
func released(ctx context.Context, r *fused.Release, got answer, err error, repeated bool) {
	switch {
	case r == nil:
	case err != nil:
		r.Run(ctx, true)
	case repeated:
		r.Answered(fused.Outcome{Notify: got.head[2] > 0, Parked: got.head[3] > 0})
	default:
		r.Answered(fused.Outcome{Lost: int(got.head[1]), Notify: got.head[2] > 0, Parked: got.head[3] > 0})
	}
}

// ackScript returns the script that has an acknowledgement of asynq in it.
func ackScript(text string) *pipeline.Script {
	known, ok := ackScripts.Load(text)
	if !ok {
		source := fused.OneKey + grantSource + strings.Replace(ackSource, "--SCRIPT--", text, 1)
		known, _ = ackScripts.LoadOrStore(text, pipeline.NewScript(source))
	}
	script, _ := known.(*pipeline.Script)
	return script
}

// errNotFound is what asynq's own scripts answer when the run of a task is another's by now.
var errNotFound = errors.New("NOT FOUND")
