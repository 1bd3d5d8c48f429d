package traces

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/railtoken/railtoken/internal/asynqwire"
)

// What the recorder and the handlers tell Redis by ECHO: the mark, what it is, the worker, and the task.
const (
	mark      = "traces"
	markBegin = "begins" // the recording
	markEnd   = "is over"
)

// deriver makes events of steps.
type deriver struct {
	*view
	workerOf func(addr string) int // nobody for the recorder
	events   []event
	recalled map[string]bool // the marks of fetches
	plain    []bool          // the run of the task has taken its lock by a call of its own
	began    bool
}

// derive returns the events of a recording. workerOf names the worker with a connection.
func derive(n names, lines []line, workerOf func(addr string) int) ([]event, error) {
	r, err := newReplica()
	if err != nil {
		return nil, err
	}
	defer r.close()
	d := &deriver{view: newView(n, r), workerOf: workerOf, plain: make([]bool, len(n.tasks)), recalled: map[string]bool{}}
	steps := stepsOf(lines)
	for i := range steps {
		if err := d.step(&steps[i]); err != nil {
			return d.events, fmt.Errorf("%w: %.300q", err, steps[i].line.args)
		}
	}
	return d.events, nil
}

// step derives the events of one step.
func (d *deriver) step(s *step) error {
	d.expire(s.at)
	before := d.now
	for _, l := range append([]line{s.line}, s.inner...) {
		if err := d.r.execute(&l); err != nil {
			return err
		}
	}
	d.look()
	switch {
	case s.name() == "ECHO" && len(s.args) > 1 && strings.HasPrefix(s.args[1], mark+" "):
		return d.marked(strings.Fields(s.args[1])[1:])
	case !d.began:
		if keys, _ := s.call(); strings.HasPrefix(signature(keys), "pending,") && strings.HasSuffix(signature(keys), ",recalled") && len(s.inner) > 0 {
			d.fetched(s, nobody, keys[len(keys)-1], false)
		}
		return nil
	}
	return d.script(s, !before.equal(d.now))
}

// expire lets time pass, lock by lock.
func (d *deriver) expire(at time.Time) {
	before := d.now
	d.r.reach(at)
	d.look()
	if !d.began {
		return
	}
	after := d.now
	step := state{slices.Clone(before.tasks), slices.Clone(before.keys)}
	for k := range d.keys {
		if before.keys[k].owner > 0 && after.keys[k].owner == 0 {
			step.keys[k] = after.keys[k]
			d.add(expires, nobody, k)
			d.events[len(d.events)-1].after = state{slices.Clone(step.tasks), slices.Clone(step.keys)}
		}
	}
}

// add adds an event with the state as it is.
func (d *deriver) add(k kind, worker, task int) {
	d.events = append(d.events, event{k, worker, task, true, d.now})
}

// marked derives the event of a mark.
func (d *deriver) marked(words []string) error {
	if words[0] == markBegin {
		d.began = true
		// What was before counts for nothing.
		for i := range d.now.tasks {
			d.now.tasks[i].runs = 0
		}
		for i := range d.now.keys {
			d.now.keys[i].raised = 0
		}
		d.add(begins, 0, 0)
		return nil
	}
	if !d.began || words[0] == "is" {
		return nil
	}
	worker, err := strconv.Atoi(words[1])
	if err != nil {
		return err
	}
	task := nobody
	if len(words) > 2 {
		if task = slices.Index(d.tasks, words[2]); task < 0 {
			return nil
		}
	}
	for k := range takesBack + 1 {
		if k.String() == words[0] {
			if k == starts && d.plain[task] { // the model begins it with its lock
				return nil
			}
			d.add(k, worker, task)
			return nil
		}
	}
	return fmt.Errorf("traces: there is no mark %q", words)
}

// signature names the keys of a script by their kinds.
func signature(keys []string) string {
	var parts []string
	for _, key := range keys {
		switch {
		case strings.HasPrefix(key, "railtoken:"):
			kind, _, _ := strings.Cut(strings.TrimPrefix(key, "railtoken:"), ":")
			parts = append(parts, kind)
		default:
			_, kind, _ := strings.Cut(key, "}:")
			kind, _, _ = strings.Cut(kind, ":")
			parts = append(parts, kind)
		}
	}
	return strings.Join(parts, ",")
}

// taskAt returns the number of the task whose hash a key is.
func (d *deriver) taskAt(key string) int {
	_, id, ok := asynqwire.TaskAt(key)
	if at := slices.Index(d.tasks, id); ok && at >= 0 {
		return at
	}
	return nobody
}

// ownerIn returns the task that has a lock in one state which another one has, or none, in the other.
func ownerIn(in, other state) int {
	for k := range in.keys {
		if in.keys[k] != other.keys[k] && in.keys[k].owner > 0 {
			return in.keys[k].owner - 1
		}
	}
	return nobody
}

// script derives the events of a step that bears no mark. Most steps that change nothing are none.
func (d *deriver) script(s *step, changed bool) error {
	worker := d.workerOf(s.from)
	keys, _ := s.call()
	sig := signature(keys)
	before := d.events[len(d.events)-1].after
	isFetch := strings.HasSuffix(sig, ",recalled")
	switch {
	case len(s.inner) == 0 && len(keys) > 0: // the server does not know the script yet: it is sent again
		return nil
	case isFetch && !strings.HasPrefix(sig, "pending,"):
		return d.ended(s, worker, changed)
	case isFetch:
		d.fetched(s, worker, keys[len(keys)-1], changed)
		return nil
	case strings.HasPrefix(sig, "t,active,lease,pending"):
		d.add(goesBack, worker, d.taskAt(keys[0]))
		return nil
	case strings.HasPrefix(sig, "t,active,lease,retry") && strings.Contains(sig, ",waiters,"):
		if t := d.taskAt(keys[0]); changed {
			d.plain[t] = false
			d.add(parks, worker, t)
		}
		return nil
	case !changed:
		return nil
	case s.name() == "DEL" && worker == nobody: // the recorder has a lock end
		for k := range before.keys {
			if before.keys[k] != d.now.keys[k] {
				d.add(expires, nobody, k)
			}
		}
		return nil
	case strings.HasPrefix(sig, "lock,"):
		if t := ownerIn(d.now, before); t != nobody {
			d.plain[t] = true
			d.add(acquires, worker, t)
			return nil
		}
		t := ownerIn(before, d.now)
		if t != nobody {
			d.plain[t] = false
		}
		d.add(releases, worker, t)
		return nil
	case sig == "retry,pending" || strings.HasPrefix(sig, "waiters,parked,parked"): // a wake outside of a release is no more than a timer
		return d.forwarded(before)
	case sig == "t,active,lease,retry" || strings.HasPrefix(sig, "t,active,lease,retry,t"): // a run that has lost its lock is put back
		d.add(ends, worker, d.taskAt(keys[0]))
		return nil
	case strings.HasPrefix(sig, "t,active,lease,retry,") || strings.HasPrefix(sig, "t,active,lease,archived,"):
		d.add(recovers, nobody, d.taskAt(keys[0]))
		return nil
	}
	return fmt.Errorf("traces: it is not known what a script with the keys %s does; before %v; after %v", sig, before, d.now)
}

// fetched derives the event of a fetch, or of a recall, which marks the fetch first. A fetch that was recalled is to take nothing.
func (d *deriver) fetched(s *step, worker int, name string, changed bool) {
	isRecall := s.inner[0].name() != "EXISTS" // a fetch looks for its mark first
	if isRecall {
		d.recalled[name] = true
	}
	switch {
	case !changed:
	case d.recalled[name] && !isRecall:
		d.add(tooLate, worker, nobody)
	default:
		d.add(fetches, worker, nobody)
	}
}

// forwarded derives the events of asynq's forwarder, one for each task.
func (d *deriver) forwarded(before state) error {
	step := state{slices.Clone(before.tasks), slices.Clone(before.keys)}
	for t := range d.tasks {
		if before.tasks[t] != d.now.tasks[t] {
			step.tasks[t] = d.now.tasks[t]
			d.add(forwards, nobody, t)
			d.events[len(d.events)-1].after = state{slices.Clone(step.tasks), slices.Clone(step.keys)}
		}
	}
	return nil
}

// ended derives the events of a call with acknowledgements. The lock of a plain run is released in the same script, which are two steps
// of the model.
func (d *deriver) ended(s *step, worker int, changed bool) error {
	acks, err := acknowledged(s)
	if err != nil {
		return err
	}
	first := len(d.events)
	for _, a := range acks {
		t := d.taskAt(a.hash)
		if t == nobody || !changed && len(acks) == 1 && d.now.tasks[t].place == active && a.run == d.lastRun[t] {
			continue // it has lost its lock, and goes on
		}
		if d.plain[t] && a.run == d.lastRun[t] { // and not an earlier one, whose call is late
			d.plain[t] = false
			d.add(releases, worker, t)
		}
		d.add(ends, worker, t)
	}
	if first == len(d.events) && changed {
		return fmt.Errorf("traces: the acknowledgement of none of the tasks has changed something")
	}
	for i := first; i < len(d.events)-1; i++ {
		d.events[i].whole = false
	}
	return nil
}

// ack is an acknowledgement: the hash of its task, and the name of the run.
type ack struct{ hash, run string }

// acknowledged returns the acknowledgements in a call of ack.lua: see the comment there.
func acknowledged(s *step) (acks []ack, err error) {
	keys, argv := s.call()
	n := func(at int) int {
		if at < 1 || at > len(argv) {
			err = fmt.Errorf("traces: an acknowledgement has no argument %d", at)
			return 0
		}
		v, e := strconv.Atoi(argv[at-1])
		if e != nil {
			err = fmt.Errorf("traces: argument %d of an acknowledgement: %w", at, e)
		}
		return v
	}
	key, arg := 1, 14+n(13)
	arg += 1 + 5*n(arg)
	for range n(1) {
		own, at := n(arg), arg+1+n(arg+1)
		held, task := n(at+8), key+n(at+1)-1
		if err != nil || task < 1 || task > len(keys) || at+2 > len(argv) {
			return nil, fmt.Errorf("traces: cannot read the acknowledgement: %w", err)
		}
		acks = append(acks, ack{keys[task-1], argv[at+1]})
		key, arg = key+own+held, at+9+held
	}
	return acks, err
}
