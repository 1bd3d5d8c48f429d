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
	Done      bool   // it is asynq's "done", which needs no text
	Keys      []string
	Args      []any
	// Release is the release of the task's locks, nil for none.
	Release *fused.Release
}

// text returns the text of the script that ends the run.
func (a *Acknowledgement) text() string {
	if a.Done {
		return doneSource
	}
	return a.Text
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
	if !known || !in.oneNode || a.Text == "" && !a.Done {
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
	r := reader{head: ackHead, names: in.order.names}
	if n > 0 {
		r.asking = in.ask()
	}
	call := ackCall{Acknowledgement: a, at: at, run: run, name: rand.Text(), most: n}
	got, err := in.send(ctx, in.ackCall(call, &r), r)
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
	call.repeated = true
	if in.repeat(func(ctx context.Context) error {
		got, err := in.send(ctx, in.ackCall(call, &r), r)
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

// ackCall is a call of ack.lua.
type ackCall struct {
	Acknowledgement
	at        int    // the position of the task's hash in Keys
	run, name string // of the call
	most      int    // tasks to take
	repeated  bool
}

// ackCall returns the call, to be sent once.
func (in *Intake) ackCall(a ackCall, r *reader) *pipeline.Call {
	locks := a.Release
	if locks == nil {
		locks = &fused.Release{}
	}
	orders, asks := in.order.orders(a.most), r.values()
	strict, repeated := 0, 0
	switch {
	case a.repeated: // a lock that has expired since the handler returned was not lost
		repeated = 1
	case locks.Strict:
		strict = 1
	}
	c := in.ackScript(a.text()).CommandOf(2+len(a.Args)+16+len(locks.Tops)+len(orders), a.Keys, locks.Keys, in.keys)
	c.Add(len(a.Keys), len(a.Args))
	c.Add(a.Args...)
	c.Add(a.at+1, a.run, a.name, a.most, leaseEnd(), repeated)
	c.Add(asks[:]...)
	c.Add(locks.Owner, strict, len(locks.Tops), len(orders))
	for _, top := range locks.Tops {
		c.Add(top)
	}
	c.Add(orders...)
	return new(pipeline.Call).Of(c, 0, nil)
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
func (in *Intake) ackScript(text string) *pipeline.Script {
	known, ok := in.ackScripts.Load(text)
	if !ok {
		source := fused.OneKey + grantSource + strings.Replace(ackSource, "--SCRIPT--", text, 1)
		known, _ = in.ackScripts.LoadOrStore(text, pipeline.NewScript(source).Joint(len(in.keys)))
	}
	script, _ := known.(*pipeline.Script)
	return script
}

// errNotFound is what asynq's own scripts answer when the run of a task is another's by now.
var errNotFound = errors.New("NOT FOUND")
