package chaos

import (
	"cmp"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// decideWithin bounds how long the checker looks at one piece of a history.
const decideWithin = time.Minute

// lock is the state of a lock: its holder's token, or 0, and the last one.
type lock struct{ holder, last int64 }

// event is the beginning or the end of a lease.
type event struct {
	token int64
	ends  bool
}

// oneHolder is a lock that has one holder at a time, and tokens that grow.
var oneHolder = porcupine.Model{
	Init: func() any { return lock{} },
	Step: func(before, input, _ any) (bool, any) {
		s, e := before.(lock), input.(event) //nolint:errcheck,forcetypeassert // the checker passes on what it was given
		if e.ends {
			return s.holder == e.token, lock{last: s.last}
		}
		return s.holder == 0 && e.token > s.last, lock{e.token, e.token}
	},
}

// Linearizable counts the keys whose leases cannot have followed one another, or for which that was not decided in time.
func Linearizable(all []Record) (bad int) {
	begins, ends := byKey(all, Begins), byKey(all, Ends)
	for key, leases := range begins {
		var ops []porcupine.Operation
		for _, l := range leases {
			ops = append(ops, porcupine.Operation{ClientId: l.Client, Input: event{token: l.Token}, Call: l.Call, Return: l.Return})
		}
		for _, l := range ends[key] {
			ops = append(ops, porcupine.Operation{ClientId: l.Client, Input: event{l.Token, true}, Call: l.Call, Return: l.Return})
		}
		slices.SortFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
		if porcupine.CheckOperationsTimeout(oneHolder, ops, decideWithin) != porcupine.Ok {
			bad++
		}
	}
	return bad
}
