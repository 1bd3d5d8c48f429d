package traces

import (
	"fmt"
	"strings"
)

// kind is what an event is, as trace.pml numbers them.
type kind int

// The kinds. Each is one script or one command, but for those that a handler marks.
const (
	begins kind = iota // not an event: the state before the first one
	fetches
	starts // a handler marks it, and the next one
	returns
	ends
	goesBack
	parks
	acquires
	releases
	expires
	recovers
	forwards
	crashes // the recorder marks it, and the next one
	_
	exits
	frees
	takesBack
	tooLate // a fetch that was recalled takes tasks
)

func (k kind) String() string {
	return [...]string{
		"begins", "fetches", "starts", "returns", "ends", "goes back", "parks", "acquires", "releases", "expires", "recovers", "forwards", "crashes",
		"", "exits", "frees", "takes back",
		"fetches after its recall",
	}[k]
}

// nobody is in place of a worker or a task, as in fused.pml.
const nobody = 255

// event is what was done, by whom with which task, and the state that it has left. It is one part of a script if it is not whole.
type event struct {
	kind         kind
	worker, task int
	whole        bool
	after        state
}

func (e *event) String() string {
	text := e.kind.String()
	if e.worker != nobody {
		text = fmt.Sprintf("w%d %s", e.worker, text)
	}
	switch {
	case e.task == nobody:
	case e.kind == expires:
		text += fmt.Sprintf(" k%d", e.task)
	default:
		text += fmt.Sprintf(" t%d", e.task)
	}
	if !e.whole {
		return text + ", and in the same script"
	}
	return text + ": " + e.after.String()
}

// line returns an event as trace.pml reads it.
func (e *event) line() string {
	whole := 0
	if e.whole {
		whole = 1
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d %d %d %d ", e.kind, e.worker, e.task, whole)
	for _, t := range e.after.tasks {
		fmt.Fprintf(&b, " %d %d %d", t.place, t.runs, t.waits)
	}
	for _, k := range e.after.keys {
		fmt.Fprintf(&b, "  %d %d %d", k.owner, k.run, k.raised)
	}
	return b.String()
}
