package locking

import "hash/maphash"

const (
	// rivalSlots is how many lists of keys are told apart. Those that share a slot cost each other a courtesy.
	rivalSlots = 256
	// firstRaces is how many races a process must win at first before it takes itself for the only one that waits. Two,
	// because in the first one all of them hold back for equally long, and one of them wins by chance.
	firstRaces = 2
	// calmRaces is how many races in a row it must win for that after it has lost one.
	calmRaces = 16
)

var rivalSeed = maphash.MakeSeed()

// rivals knows for which keys other processes wait, too, as far as races with them have shown: for each slot, how many
// races are to be won until there are none. It outlives the waiters, because a process with one waiter at a time would
// otherwise take itself for the only one each time, and overtake those that have lost races. The Gate's mutex guards it.
type rivals [rivalSlots]uint8

// unknownRivals returns the rivals of a process that has had no races yet.
func unknownRivals() rivals {
	var r rivals
	for i := range r {
		r[i] = firstRaces
	}
	return r
}

// slot returns that of a group of waiters.
func (r *rivals) slot(group string) *uint8 {
	return &r[maphash.String(rivalSeed, group)%rivalSlots]
}

// lost notes that another process was faster after a notification.
func (r *rivals) lost(group string) { *r.slot(group) = calmRaces }

// won notes that no other process was faster.
func (r *rivals) won(group string) {
	if left := r.slot(group); *left > 0 {
		*left--
	}
}

// known reports whether other processes may wait for the keys.
func (r *rivals) known(group string) bool { return *r.slot(group) > 0 }
