package locking

import (
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/railtoken/railtoken/internal/lockwire"
	"github.com/railtoken/railtoken/internal/pipeline"
)

var (
	//go:embed lua/batch.lua
	batchSource string

	batch = pipeline.NewBatchScript(lockwire.Script(batchSource), 3) // for calls of one key

	acquireScript = pipeline.NewScript(lockwire.Acquire).In(batch, 'a').ForNewcomers()
	renewScript   = pipeline.NewScript(lockwire.Renew).In(batch, 'N')
	releaseScript = pipeline.NewScript(lockwire.Release).In(batch, 'A')
	abandonScript = pipeline.NewScript(lockwire.Abandon)
)

// acquireCommand returns the call of an acquire script. Unless all is set, it omits trailing arguments with default
// values. A proposal of 0 stands for the server's clock, and a negative one for that clock with tokens above its
// absolute value.
func acquireCommand(
	script *pipeline.Script, redisKeys []string, owner string, fenceTTL time.Duration, proposal int64,
	opts Options, all bool,
) pipeline.Command {
	room := 3
	switch {
	case all:
		room = 7 // one more argument follows
	case opts.block != 1:
		room = 6
	case opts.Notify != 0:
		room = 5
	case proposal != 0:
		room = 4
	}
	c := script.Command(redisKeys, room)
	c.Add(owner, ms(opts.TTL), ms(fenceTTL))
	if room > 3 {
		c.Add(proposal)
	}
	if room > 4 {
		c.Add(ms(opts.Notify))
	}
	if room > 5 {
		c.Add(opts.block)
	}
	return c
}

// releaseCommand returns the call that releases what an acquire call takes. tops is nil if the tokens are unknown.
func releaseCommand(acquire *pipeline.Command, tops []int64) pipeline.Command {
	c := releaseScript.Like(acquire, len(tops))
	for _, top := range tops {
		c.Add(top)
	}
	return c
}

// lateness is how long a server refuses an acquire call that its owner has abandoned. TCP does not deliver later than
// that what a client has left behind.
const lateness = 2 * time.Minute

// abandonCommand returns the call that gives back an unanswered acquire call. With several, more than one such call was
// sent, so the locks on the server may be those of another one. repeated says that this call may have been executed
// before.
func abandonCommand(acquire *pipeline.Command, fenceTTL time.Duration, several, repeated bool) pipeline.Command {
	c := abandonScript.Like(acquire, 5)
	c.Add(int64(lateness/time.Second), ms(fenceTTL))
	for _, is := range []bool{several, repeated} {
		if is {
			c.Add(1)
		} else {
			c.Add(0)
		}
	}
	return c
}

// errReply is the error of an answer that no script returns.
var errReply = errors.New("unexpected script reply")

func badReply(reply any) error { return fmt.Errorf("%w: %v", errReply, reply) }

// parseAcquire reads the reply of the acquire script: the last token of each key's block, or a held key with its holder
// and the value of its lock.
func parseAcquire(reply any, keys []string) (tops []int64, held *HeldError, value string, err error) {
	if top, ok := reply.(int64); ok && len(keys) == 1 && top > 0 {
		if top >= tokenLimit {
			return nil, nil, "", errTokens
		}
		return []int64{top}, nil, "", nil
	}
	list, _ := reply.([]any)
	if len(list) == 0 {
		return nil, nil, "", badReply(reply)
	}
	if list[0] != int64(0) {
		if len(list) != len(keys) {
			return nil, nil, "", badReply(reply)
		}
		for _, r := range list {
			top, ok := r.(int64)
			switch {
			case !ok || top <= 0:
				return nil, nil, "", badReply(reply)
			case top >= tokenLimit:
				return nil, nil, "", errTokens
			}
			tops = append(tops, top)
		}
		return tops, nil, "", nil
	}
	if len(list) != 5 {
		return nil, nil, "", badReply(reply)
	}
	position, ok1 := list[1].(int64)
	value, ok2 := list[2].(string)
	remaining, ok3 := list[3].(int64)
	counter, ok4 := list[4].(string)
	if !ok1 || !ok2 || !ok3 || !ok4 || position < 1 || int(position) > len(keys) {
		return nil, nil, "", badReply(reply)
	}
	holder := lockwire.ParseOwner(value)
	held = &HeldError{Key: keys[position-1], Holder: Holder{
		Label: holder.Label, Since: holder.Since, Remaining: time.Duration(remaining) * time.Millisecond,
	}}
	counter, _, _ = strings.Cut(counter, " ") // marks of abandoned attempts
	// The counter is 0 when another program wrote the lock.
	if top, err := strconv.ParseInt(counter, 10, 64); err == nil && top >= holder.Block {
		held.Holder.Fence = top - holder.Block + 1
	}
	return nil, held, value, nil
}

// releaseReply is the reply of the release script.
type releaseReply struct {
	lost   int // position of the first key that another holder has taken since, or 0
	notify bool
}

// parseRelease reads the reply of the release script for a number of keys.
func parseRelease(reply any, keys int) (releaseReply, error) {
	if reply == int64(0) {
		return releaseReply{}, nil
	}
	if list, _ := reply.([]any); len(list) == 2 {
		lost, ok1 := list[0].(int64)
		subscribed, ok2 := list[1].(int64)
		if ok1 && ok2 && lost >= 0 && int(lost) <= keys {
			return releaseReply{lost: int(lost), notify: subscribed > 0}, nil
		}
	}
	return releaseReply{}, badReply(reply)
}

// parseRenew reads the reply of the renew script for a number of keys: the position of the first lost key, or 0.
func parseRenew(reply any, keys int) (lost int, err error) {
	position, ok := reply.(int64)
	if !ok || position < 0 || int(position) > keys {
		return 0, badReply(reply)
	}
	return int(position), nil
}

// ms returns d in whole milliseconds, rounded up.
func ms(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
