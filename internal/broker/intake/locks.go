package intake

import (
	"fmt"
	"slices"
	"strings"

	"github.com/railtoken/railtoken/internal/colocated"
	"github.com/railtoken/railtoken/internal/rediswire"
)

// asking has the lock arguments of a call. The zero value takes no locks.
type asking struct {
	locks colocated.Locks
	ask   colocated.Ask
	types *colocated.Types
	text  string // of the types
}

// ask returns the lock arguments of the next call.
func (p *place) ask() (a asking) {
	in := p.in
	if in.locks == nil || !p.colocated {
		return a
	}
	if a.text = in.types.String(); a.text != "" {
		a.locks, a.types, a.ask = in.locks, in.types, in.locks.Ask()
	}
	return a
}

// values returns the arguments of grant.lua for locks.
func (a *asking) values() []any {
	return []any{a.text, a.ask.ID, a.ask.Tail, a.ask.Floor, a.ask.FenceTTL.Milliseconds(), a.ask.Block}
}

// mostOwner is the longest value of a lock.
const mostOwner = 500

// locked returns the locks that the n-th task of a call was taken with, or that one of them is held, or neither. reply is
// that of the script about them.
func (a *asking) locked(t *Task, number int, reply any) (*colocated.Taken, *colocated.Refused) {
	list, _ := reply.([]any)
	switch {
	case len(list) == 0 || a.locks == nil:
		return nil, nil
	case list[0] == int64(0):
		return nil, a.refused(t.Recorded, reply)
	default:
		return a.taken(t, number, list), nil
	}
}

// refused returns that one of the recorded keys of a task is held; nil if the reply cannot be read.
func (a *asking) refused(recorded string, reply any) *colocated.Refused {
	refused := &colocated.Refused{}
	for rest := recorded; rest != ""; {
		encoded, after, _ := strings.Cut(rest, " ")
		key, ok := rediswire.Decode(encoded)
		if !ok {
			return nil
		}
		refused.Keys, rest = append(refused.Keys, key), after
	}
	refused.Held = a.locks.Refusal(refused.Keys, reply)
	return refused
}

// taken returns the locks that a task was taken with, by the counters of its keys.
func (a *asking) taken(t *Task, number int, list []any) *colocated.Taken {
	kind := typeOf(t.Message)
	ttl, order := a.types.TTL(kind)
	owner := a.ask.ID + fmt.Sprintf("%03d", number) + a.ask.Tail + kind + "/" + t.ID
	taken := &colocated.Taken{
		Ask: a.ask, Owner: owner[:min(len(owner), mostOwner)], TTL: ttl, Order: order, Locks: a.locks,
	}
	grants := make([]grant, len(list))
	rest := t.Recorded
	for i, counter := range list {
		var ok bool
		if grants[i], rest, ok = grantOf(rest, counter); !ok {
			a.types.Forget(kind) // not our record; its locks end with their TTL
			return nil
		}
	}
	slices.SortFunc(grants, func(a, b grant) int { return strings.Compare(a.key, b.key) })
	taken.Keys, taken.Tops = make([]string, 0, len(grants)), make([]int64, 0, len(grants))
	for _, g := range slices.CompactFunc(grants, func(a, b grant) bool { return a.key == b.key }) {
		taken.Keys, taken.Tops = append(taken.Keys, g.key), append(taken.Tops, g.top)
	}
	return taken
}

// grant is one lock that a script has taken.
type grant struct {
	key string
	top int64 // its counter
}

// grantOf returns the grant of the first recorded key, and the keys after it.
func grantOf(recorded string, counter any) (g grant, rest string, ok bool) {
	encoded, rest, _ := strings.Cut(recorded, " ")
	g.key, ok = rediswire.Decode(encoded)
	top, isTop := counter.(int64)
	g.top = top
	return g, rest, ok && isTop
}

// typeOf returns the type of the task of a message, its first field, as grant.lua does.
func typeOf(message string) string {
	if len(message) < 2 || len(message) < 2+int(message[1]) {
		return ""
	}
	return message[2 : 2+message[1]]
}
