package locking

import "hash/maphash"

const (
	// rivalSlots is how many lists of keys are told apart. Those that share a slot cost each other a courtesy.
	rivalSlots = 256
	// wariness is in how many races a process holds back after a lost one.
	wariness = 16
	// calm is how many races it then wins at once, before it holds back in one to learn of processes farther away.
	calm = 32
)

var rivalSeed = maphash.MakeSeed()

// rivals knows for which keys other processes may wait, too, as far as races with them have shown. It outlives the
// waiters, because a process with one waiter at a time would otherwise take itself for the only one each time, and
// overtake those that have lost races. In its first race a process goes at once. If it wins, it holds back in the second
// one, for longer than any process that has lost the first. The Gate's mutex guards it.
//
// A slot has the number of races in which the process holds back, or, if negative, of those until it is as at first.
type rivals [rivalSlots]int8

// slot returns that of a group of waiters.
func (r *rivals) slot(group string) *int8 {
	return &r[maphash.String(rivalSeed, group)%rivalSlots]
}

// lost notes that another process was faster after a notification.
func (r *rivals) lost(group string) { *r.slot(group) = wariness }

// won notes that no other process was faster, in a race that followed no lost one.
func (r *rivals) won(group string) {
	switch n := r.slot(group); {
	case *n > 1:
		*n--
	case *n == 1:
		*n = 1 - calm
	default:
		*n++
	}
}

// known reports whether other processes may wait for the keys.
func (r *rivals) known(group string) bool { return *r.slot(group) > 0 }
