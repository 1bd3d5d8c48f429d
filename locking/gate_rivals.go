package locking

import "hash/maphash"

const (
	// rivalSlots is how many lists of keys are told apart. Those that share a slot cost each other a courtesy.
	rivalSlots = 256
	// calmRaces is how many races in a row a process must win after a lost one before it takes itself for the only one
	// that waits.
	calmRaces = 16
)

var rivalSeed = maphash.MakeSeed()

// rivals knows for which keys other processes wait, too, as far as races with them have shown. It outlives the waiters,
// because a process with one waiter at a time would otherwise take itself for the only one each time, and overtake those
// that have lost races. In its first race for a key a process goes at once. If it wins, it holds back in the second one,
// which it loses to any process that has lost the first. The Gate's mutex guards it.
type rivals [rivalSlots]races

// races is 0 before the first race for the keys of a slot, and then 1 more than the number of races to be won until the
// process takes itself for the only one.
type races uint8

// slot returns that of a group of waiters.
func (r *rivals) slot(group string) *races {
	return &r[maphash.String(rivalSeed, group)%rivalSlots]
}

// lost notes that another process was faster after a notification.
func (r *rivals) lost(group string) { *r.slot(group) = calmRaces + 1 }

// won notes that no other process was faster.
func (r *rivals) won(group string) {
	switch left := r.slot(group); *left {
	case 0:
		*left = 2
	case 1:
	default:
		*left--
	}
}

// known reports whether other processes may wait for the keys.
func (r *rivals) known(group string) bool { return *r.slot(group) > 1 }
