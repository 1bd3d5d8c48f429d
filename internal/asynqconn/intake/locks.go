package intake

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/railtoken/railtoken/internal/fused"
	"github.com/railtoken/railtoken/internal/keys"
)

// asking is what a call needs that may take locks. The zero value takes none.
type asking struct {
	locks fused.Locks
	ask   fused.Ask
	types *fused.Types
	text  string // of the types
}

// ask returns what a call needs that is about to be sent.
func (in *Intake) ask() (a asking) {
	if in.locks == nil || !in.oneNode {
		return a
	}
	if a.text = in.types.String(); a.text != "" {
		a.locks, a.types, a.ask = in.locks, in.types, in.locks.Ask()
	}
	return a
}

// add adds the arguments of grant.lua for locks.
func (a *asking) add(args []any) []any {
	return append(args, a.text, a.ask.ID, a.ask.Tail, a.ask.Floor, a.ask.FenceTTL.Milliseconds(), a.ask.Block)
}

// mostOwner is the longest value of a lock.
const mostOwner = 500

// taken returns the locks that a task was taken with, or nil. counters is the reply of the script about them.
func (a *asking) taken(t *Task, counters any) *fused.Taken {
	list, _ := counters.([]any)
	if len(list) == 0 || a.locks == nil {
		return nil
	}
	kind := typeOf(t.Message)
	number := t.Run[strings.LastIndexByte(t.Run, '.')+1:]
	owner := fmt.Sprintf("%s%03s%s%s/%s", a.ask.ID, number, a.ask.Tail, kind, t.ID)
	taken := &fused.Taken{
		Ask: a.ask, Owner: owner[:min(len(owner), mostOwner)], TTL: a.ttl(kind), Locks: a.locks,
	}
	encoded := strings.Fields(t.Recorded)
	if len(encoded) != len(list) {
		return nil
	}
	type grant struct {
		key string
		top int64
	}
	grants := make([]grant, len(list))
	for i, counter := range list {
		top, ok1 := counter.(int64)
		key, ok2 := keys.Decode(encoded[i])
		if !ok1 || !ok2 {
			return nil
		}
		grants[i] = grant{key, top}
	}
	slices.SortFunc(grants, func(a, b grant) int { return strings.Compare(a.key, b.key) })
	for _, g := range slices.CompactFunc(grants, func(a, b grant) bool { return a.key == b.key }) {
		taken.Keys, taken.Tops = append(taken.Keys, g.key), append(taken.Tops, g.top)
	}
	return taken
}

// ttl returns the TTL with which the locks of a type were taken.
func (a *asking) ttl(kind string) time.Duration {
	_, rest, _ := strings.Cut(a.text, "|"+kind+"=")
	ms, _, _ := strings.Cut(rest, "|")
	d, _ := time.ParseDuration(ms + "ms")
	return d
}

// typeOf returns the type of the task of a message, its first field, as grant.lua does.
func typeOf(message string) string {
	if len(message) < 2 || len(message) < 2+int(message[1]) {
		return ""
	}
	return message[2 : 2+message[1]]
}
