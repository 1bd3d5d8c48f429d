package intake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/colocated"
	"github.com/railtoken/railtoken/internal/ends"
	"github.com/railtoken/railtoken/internal/pipeline"
	"github.com/railtoken/railtoken/internal/rediswire"
)

// Acknowledgement is asynq's end of a run.
type Acknowledgement struct {
	Queue, ID string
	Text      string // of asynq's script; "" when it is not known yet
	Done      bool   // it is asynq's "done", which needs no text
	Keys      []string
	Args      []any
	// Release is the release of the task's locks, nil for none.
	Release *colocated.Release
	// Ending is the mark of the end of the task, nil for none.
	Ending *ends.Ending
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

// Run returns the run in which asynq has a task, or "" if it is not one of this Intake.
func (in *Intake) Run(queue, id string) string { return in.slots.run(name{queue, id}) }

// Values of the first number in the reply of an acknowledgement.
const (
	ackOver int64 = 0 // the run was over
	ackDone int64 = 1 // it has ended
	ackLost int64 = 2 // a lock was lost, and the run goes on
)

// ErrLost reports that a run was not ended, because a lock of the task was lost. Its locks were released.
var ErrLost = errors.New("broker: a lock of the task was lost")

// errNotFound is what asynq's own scripts answer when the run of a task is another's by now.
var errNotFound = errors.New("NOT FOUND")

// Acknowledge ends a run, if the task is still in it, releases its locks, and wakes tasks that are parked on their keys.
// Tasks are taken in the same call for the slots that are free then. ok is false when nothing was sent: the run is not
// one of this Intake, or nothing is taken any more.
func (in *Intake) Acknowledge(ctx context.Context, a Acknowledgement) (ok bool, _ error) {
	run, known := in.slots.end(name{a.Queue, a.ID})
	if !known || a.Text == "" && !a.Done {
		return false, nil
	}
	at := slices.Index(a.Keys, asynqwire.Hash(a.Queue, a.ID))
	if at < 0 {
		return false, nil
	}
	if !in.begin(false) {
		return false, nil
	}
	defer in.end()
	p := in.place(a.Queue)
	script := p.ackScript(a.text())
	// asynq's lease bounds ctx, and is longer than a call may take.
	got, err := readAcknowledged(p.server.Finish(ctx, in.ackCall(&a, script, at, run, true)))
	if !unanswered(err) {
		if err == nil && got.end == ackDone && a.Ending != nil {
			a.Ending.Told()
		}
		if slices.ContainsFunc(got.Woken, func(w colocated.Woken) bool { return w.Pending > 0 }) {
			p.hear(^queueSet(0))
		}
		got.release(ctx, a.Release, err, false)
		switch {
		case err == nil && got.end == ackOver:
			err = errNotFound
		case err == nil && got.end == ackLost:
			err = ErrLost
		}
		return true, err
	}
	if in.repeat(func(ctx context.Context) error {
		got, err := readAcknowledged(p.server.Run(ctx, in.ackCall(&a, script, at, run, false)))
		if passes(err) {
			return err
		}
		got.release(ctx, a.Release, err, true)
		return nil
	}, func() { got.release(ctx, a.Release, err, true) }) {
		return true, nil
	}
	return true, err
}

// ackCall returns the call of ack.lua, to be made once. at is the position of the task's hash in the keys. The first call
// alone wakes tasks, and alone is strict: a lock that has expired since the handler returned was not lost.
func (in *Intake) ackCall(a *Acknowledgement, script *pipeline.Script, at int, run string, first bool) *pipeline.Call {
	locks := a.Release
	if locks == nil {
		locks = &colocated.Release{}
	}
	var held [4]string
	behind := locks.Locks(held[:0])
	if in.marks {
		behind = append(behind, a.marks())
	}
	c := script.CommandOf(13+len(a.Args)+len(locks.Tops), a.Keys, behind)
	c.Add(len(a.Keys), len(a.Args))
	c.Add(a.Args...)
	wakes := 0
	if first {
		wakes = locks.Wakes
	}
	c.Add(at+1, run, locks.Owner, flag(first && locks.Strict), string(locks.Place), wakes, flag(locks.Kept), len(locks.Tops))
	for _, top := range locks.Tops {
		c.Add(top)
	}
	switch {
	case !in.marks:
	case a.Ending == nil:
		c.Add("", "", 0)
	default:
		c.Add(a.Ending.Member, a.Ending.Archived, ends.Unclaimed.Milliseconds())
	}
	return new(pipeline.Call).Of(c, 0, nil)
}

// marks returns the key of the marks in which the end of the task is noted, or may be.
func (a *Acknowledgement) marks() string {
	if a.Ending == nil {
		return ends.ArchivedMarks(a.Queue)
	}
	return a.Ending.Key
}

// flag returns a truth value as a script reads it.
func flag(is bool) int {
	if is {
		return 1
	}
	return 0
}

// acknowledged is the reply to an acknowledgement.
type acknowledged struct {
	end int64
	colocated.Outcome
}

// readAcknowledged reads the reply of ack.lua to one acknowledgement.
func readAcknowledged(reply any, err error) (got acknowledged, _ error) {
	if err != nil {
		return got, err
	}
	if reply == ackDone { // nearly always
		return acknowledged{end: ackDone}, nil
	}
	var n [4]int64
	list, _ := reply.([]any)
	if len(list) < len(n) {
		return got, fmt.Errorf("%w: %v", errReply, reply)
	}
	for i := range n {
		var ok bool
		if n[i], ok = list[i].(int64); !ok {
			return got, fmt.Errorf("%w: %v", errReply, reply)
		}
	}
	got = acknowledged{n[0], colocated.Outcome{
		Lost: int(max(n[1], -n[1])), Foreign: n[1] < 0, Notify: n[2] > 0, Parked: n[3] > 0,
	}}
	for _, value := range list[len(n):] {
		w, err := readWoken(value)
		if err != nil {
			return got, err
		}
		got.Woken = append(got.Woken, w)
	}
	return got, nil
}

// readWoken reads which tasks were woken for a key.
func readWoken(value any) (w colocated.Woken, _ error) {
	list, _ := value.([]any)
	if len(list) < 3 {
		return w, fmt.Errorf("%w: woken %v", errReply, value)
	}
	key, ok1 := list[0].(int64)
	left, ok2 := list[1].(int64)
	pending, ok3 := list[2].(int64)
	if !ok1 || !ok2 || !ok3 {
		return w, fmt.Errorf("%w: woken %v", errReply, value)
	}
	w = colocated.Woken{Key: int(key), Left: int(left), Pending: int(pending)}
	for _, entry := range list[3:] {
		text, _ := entry.(string)
		w.Entries = append(w.Entries, text)
	}
	return w, nil
}

// release tells the release of a task's locks what an acknowledgement has done with them. repeated says that the
// acknowledgement was sent before: what has become of the locks since proves nothing.
func (a acknowledged) release(ctx context.Context, r *colocated.Release, err error, repeated bool) {
	switch {
	case r == nil:
	case err != nil:
		r.Run(ctx, true)
	default:
		if repeated {
			a.Lost = 0
		}
		a.Scripted = true
		r.Answered(a.Outcome)
	}
}

// ackScript returns the script that has an acknowledgement of asynq in it. Each of its commands takes tasks, too.
func (p *place) ackScript(text string) *pipeline.Script {
	known, ok := p.ackScripts.Load(text)
	if !ok {
		known, _ = p.ackScripts.LoadOrStore(text, p.in.ackScript(text).With(p.fetchWithAcks))
	}
	script, _ := known.(*pipeline.Script)
	return script
}

// ackScript returns the script of all places for acknowledgements of a kind, by asynq's text.
func (in *Intake) ackScript(text string) *pipeline.Script {
	known, ok := in.ackScripts.Load(text)
	if !ok {
		source := strings.Replace(ackSource, "--MARKS--", strconv.FormatBool(in.marks), 1)
		source = in.parking.source(rediswire.Compose(ends.Functions, strings.Replace(source, "--SCRIPT--", text, 1)))
		known, _ = in.ackScripts.LoadOrStore(text, pipeline.NewScript(source))
	}
	script, _ := known.(*pipeline.Script)
	return script
}

// fetchWithAcks returns the fetch that goes with acknowledgements in one command. They end later than their command is
// answered, so the Intake waits for it.
func (p *place) fetchWithAcks(calls int) pipeline.Share {
	in := p.in
	var found []arrival
	n := 0
	var a asked
	// While a node is away, its acknowledgements are repeated, and each fetch without an answer is recalled until there is one: there
	// must not be more of them than there are slots. On one Redis a lost fetch keeps its slots, which bounds them; on a Cluster it does
	// not (see free), so none is sent beside a recall.
	recalled := p.recalls.Load() > 0
	takes := !in.quiet.Load() && !in.isStopping() && (in.oneNode || !recalled)
	if takes {
		most := -1
		if in.turning != nil && p.number >= 0 {
			a, most = in.turning.join(p, calls)
		}
		found, n = in.slots.ask(p, 0, calls, most)
		takes = n+len(found) > 0 || !recalled
		if !p.colocated {
			n = in.slots.keep(n, in.order.first(p.queues[0], n))
		}
	}
	f := p.fetch(n, found, takes, a)
	return pipeline.Share{Keys: f.keys, Args: f.args, Answered: func(reply any, err error) {
		switch {
		case f.call == "":
		case !unanswered(err):
			_, _ = f.answered(reply, err) // the next Fetch meets the error
		default:
			f.turned(false, false, err)
			f.free()
			p.recalls.Add(1)
			in.repeat(func(ctx context.Context) error {
				_, err := f.recall(ctx)
				if err == nil {
					p.recalls.Add(-1)
				}
				return err
			}, func() { // asynq recovers what it has taken
				p.recalls.Add(-1)
				in.slots.admitted(len(found))
				in.came(f.most+len(found), nil, time.Time{})
			})
		}
	}}
}
