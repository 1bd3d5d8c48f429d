// Package lanes chooses names so that everything of a business key lies in one slot of a Redis Cluster: its lock, its line, and
// the tasks that need it. The scripts for one Redis then work on a Cluster, too, on as many masters as there are.
//
// Of L lanes, each owns one slot, spread evenly over all of them. Lane 17 of the queue orders is the queue orders@17-4k2, and
// the names of its keys begin with the hash tag {@17-9c}. Numbers and suffixes depend on nothing but L and the queue, so all
// processes that have the same L choose the same names.
package lanes

import (
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/rediswire"
)

// Least and Most are how many lanes there may be, besides none.
const (
	Least = 16
	Most  = 1024
)

// slots is how many a Redis Cluster has.
const slots = 16384

// mark stands before the number of a lane in a name.
const mark = "@"

// Lanes are a number of lanes. The zero value has none: then names are as they are without lanes.
type Lanes struct{ n int }

// New returns n lanes, none if n is 0. n must be a power of two from [Least] to [Most].
func New(n int) (Lanes, error) {
	if n == 0 {
		return Lanes{}, nil
	}
	if n < Least || n > Most || n&(n-1) != 0 {
		return Lanes{}, fmt.Errorf("there are to be %d lanes: use a power of two from %d to %d, such as 64, or 0 for none", n, Least, Most)
	}
	return Lanes{n}, nil
}

// On returns n lanes on the Redis of a client, which must be a Cluster if there are to be any.
func On(client redis.UniversalClient, n int) (Lanes, error) {
	l, err := New(n)
	if _, cluster := client.(*redis.ClusterClient); err == nil && n > 0 && !cluster {
		return Lanes{}, fmt.Errorf("there are to be %d lanes with a %T: lanes are for a Redis Cluster, and need a *redis.ClusterClient; "+
			"leave them out on one Redis", n, client)
	}
	return l, err
}

// Count returns how many lanes there are.
func (l Lanes) Count() int { return l.n }

// Of returns the lane of a business key, 0 if there are none.
func (l Lanes) Of(key string) int {
	if l.n == 0 {
		return 0
	}
	return int(crc32.ChecksumIEEE([]byte(key)) % uint32(l.n))
}

// Home returns the lane of a task with several keys: that of the first in sorted order.
func (l Lanes) Home(keys []string) int {
	first := keys[0]
	for _, key := range keys[1:] {
		first = min(first, key)
	}
	return l.Of(first)
}

// Encode returns what stands behind the opening brace in the names of a business key, and before the last one: the key as
// rediswire encodes it, behind the tag of its lane. rediswire.Decode reads it.
func (l Lanes) Encode(key string) string {
	encoded := rediswire.Encode(key)
	if l.n == 0 {
		return encoded
	}
	return l.Tag(l.Of(key)) + "}" + encoded
}

// Tag returns the hash tag of the keys of a lane, "" if there are no lanes.
func (l Lanes) Tag(lane int) string {
	if l.n == 0 {
		return ""
	}
	return l.Queue("", lane)
}

// Slot returns the slot of a lane.
func (l Lanes) Slot(lane int) int { return lane * (slots / l.n) }

// Queue returns the name of a queue in a lane; the queue itself if there are no lanes. Check tells whether it can have one.
func (l Lanes) Queue(queue string, lane int) string {
	if l.n == 0 {
		return queue
	}
	begin := queue + mark + strconv.Itoa(lane) + "-"
	// The checksum is linear: that of a name is the one of the name with a suffix of zeros, XOR that of the suffix.
	zeros := rediswire.Checksum(rediswire.Checksum(0, begin), zeroSuffix)
	return begin + suffixes()[int(zeros%slots)^l.Slot(lane)]
}

// suffixSize is the length of a suffix, and digits are what it is made of: enough for each slot.
const (
	suffixSize = len(zeroSuffix)
	zeroSuffix = "\x00\x00\x00"
	digits     = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// suffixes returns for each slot the first suffix that is in it by itself.
var suffixes = sync.OnceValue(func() *[slots]string {
	var all [slots]string
	for _, a := range digits {
		for _, b := range digits {
			for _, c := range digits {
				suffix := string([]rune{a, b, c})
				if slot := rediswire.Checksum(0, suffix) % slots; all[slot] == "" {
					all[slot] = suffix
				}
			}
		}
	}
	return &all
})

// Check returns why a queue cannot have lanes, or nil.
func (l Lanes) Check(queue string) error {
	switch {
	case l.n == 0:
		return nil
	case strings.ContainsAny(queue, "{}"):
		return fmt.Errorf("the queue %q has a brace in its name, which would decide on its slot: rename it, or use no lanes", queue)
	case looksInLane(queue):
		return fmt.Errorf("the queue %q is named like one in a lane, NAME@NUMBER-xyz: name the queue without its lane, or rename it", queue)
	}
	return nil
}

// looksInLane reports whether a name has the form of that of a queue in a lane. Scripts know no more: they have no checksum to tell
// the suffix.
func looksInLane(queue string) bool {
	at := strings.LastIndex(queue, mark)
	number, suffix, found := strings.Cut(queue[at+1:], "-")
	return at >= 0 && found && number != "" && strings.Trim(number, digits[:10]) == "" && len(suffix) == suffixSize && strings.Trim(suffix, digits) == ""
}

// Split returns the queue and the lane that the name of a queue in a lane is made of, for any number of lanes; ok is false
// for any other name.
func Split(inLane string) (queue string, lane int, ok bool) {
	at := strings.LastIndex(inLane, mark)
	if at < 0 {
		return inLane, 0, false
	}
	number, suffix, found := strings.Cut(inLane[at+len(mark):], "-")
	lane, err := strconv.Atoi(number)
	if !found || err != nil || lane < 0 || lane >= Most || len(suffix) != suffixSize || strconv.Itoa(lane) != number {
		return inLane, 0, false
	}
	slot := int(rediswire.Checksum(0, inLane) % slots)
	for n := Least; n <= Most; n *= 2 {
		if l := (Lanes{n}); lane < n && l.Slot(lane) == slot && l.Queue(inLane[:at], lane) == inLane {
			return inLane[:at], lane, true
		}
	}
	return inLane, 0, false
}

// Base returns the queue that a queue in a lane belongs to, and any other queue itself.
func Base(queue string) string {
	base, _, _ := Split(queue)
	return base
}

// In returns the lane of a queue if it is one of these, and false if it is in no lane.
func (l Lanes) In(queue string) (lane int, ok bool) {
	if l.n == 0 {
		return 0, false
	}
	base, lane, ok := Split(queue)
	return lane, ok && lane < l.n && l.Queue(base, lane) == queue
}

// Queues returns a queue in each lane, and the queue itself last, where tasks are that were enqueued without lanes.
func (l Lanes) Queues(queue string) []string {
	all := make([]string, 0, l.n+1)
	for lane := range l.n {
		all = append(all, l.Queue(queue, lane))
	}
	return append(all, queue)
}

// InOneLane reports whether some keys are in the same lane, as without lanes.
func (l Lanes) InOneLane(keys []string) bool {
	for _, key := range keys {
		if l.Of(key) != l.Of(keys[0]) {
			return false
		}
	}
	return true
}
