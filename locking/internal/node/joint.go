package node

import (
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"
)

// leastJoint is for how many calls one command of a joint script is worth its while: for two it costs as much as two commands.
const leastJoint = 3

// Joint is a script that does in one command what several calls of other scripts do. A server spends about half of its time on what every
// script call costs, whatever the script does.
//
// Its KEYS are those of all calls, one after another; its ARGV are first a string with a byte for each call, which is the code of the call's
// script plus the number of its arguments, then the arguments of all calls. It returns the list of their replies, and if some of them have
// failed one more list, of the position (from 1) and the text of each error. It is no error reply: go-redis 9.23 stops reading a list at
// one that it has a type for, such as OOM. An error of the whole command says that the calls may be made again.
type Joint struct {
	script *Script
	keys   int
}

// NewJoint returns the joint script with that source, for calls of that many keys each.
func NewJoint(source string, keys int) *Joint {
	return &Joint{script: NewScript(source), keys: keys}
}

// In makes calls of s with as many keys as j is for part of j's commands, by that code. It returns s, and is for the time before its first call.
func (s *Script) In(j *Joint, code byte) *Script {
	s.joint, s.code = j, code
	return s
}

// unit is what one command of a pipeline does: one call, or several by a joint script.
type unit struct {
	calls   []*Call
	command Command
	err     error // of the command as a whole
}

// arrange returns the commands that make the calls of a batch. Calls that a joint script can make are put together where there are at least
// so many of them; none are when least is 0. Calls with a key in common stay in their order.
func arrange(batch []*Call, least int) []unit {
	if least == 0 {
		return apart(make([]unit, 0, len(batch)), batch)
	}
	joint := batch[0].command.joint()
	same := 0 // so many calls at the beginning are for one joint script; nearly always all
	for same < len(batch) && joint != nil && batch[same].command.joint() == joint {
		same++
	}
	if same == len(batch) {
		return together(nil, joint, batch, least)
	}
	var units []unit
	open := slices.Clone(batch[:same]) // calls that are to go together, after the units
	for i, c := range batch[same:] {
		own := c.command.joint()
		if len(open) > 0 && own != joint && (own != nil || meets(c, open)) {
			units = together(units, joint, open, least)
			open = nil
		}
		if own == nil {
			units = apart(units, batch[same+i:same+i+1])
			continue
		}
		joint = own
		open = append(open, c)
	}
	return together(units, joint, open, least)
}

// apart adds a unit for each call.
func apart(units []unit, calls []*Call) []unit {
	for i, c := range calls {
		units = append(units, unit{calls: calls[i : i+1], command: c.command})
	}
	return units
}

// together adds one unit for all of the calls, if there are enough of them.
func together(units []unit, joint *Joint, calls []*Call, least int) []unit {
	if len(calls) < max(least, 2) {
		return apart(units, calls)
	}
	return append(units, unit{calls: calls, command: joint.command(calls)})
}

// meets reports whether a call has a key in common with others.
func meets(c *Call, others []*Call) bool {
	for _, key := range c.command.keyArgs() {
		for _, other := range others {
			if slices.Contains(other.command.keyArgs(), key) {
				return true
			}
		}
	}
	return false
}

// command returns the command that makes all of the calls.
func (j *Joint) command(calls []*Call) Command {
	size, codes := 4, make([]byte, len(calls))
	for i, c := range calls {
		size += len(c.command.args) - 3
		codes[i] = c.command.script.code + byte(len(c.command.ownArgs()))
	}
	args := append(make([]any, 0, size), evalsha, j.script.sha, j.keys*len(calls))
	for _, c := range calls {
		args = append(args, c.command.keyArgs()...)
	}
	args = append(args, string(codes))
	for _, c := range calls {
		args = append(args, c.command.ownArgs()...)
	}
	return Command{script: j.script, args: args, keys: j.keys * len(calls)}
}

// answer gives each call what the server has answered to the unit's command.
func (u *unit) answer(reply any, err error) {
	u.err = err
	if len(u.calls) == 1 {
		u.calls[0].Reply, u.calls[0].Err = reply, err
		return
	}
	replies, failures, ok := split(reply, len(u.calls))
	if err == nil && !ok {
		err = fmt.Errorf("no replies to %d calls: %v", len(u.calls), reply)
	}
	for i, c := range u.calls {
		c.Reply, c.Err = nil, err
		if err == nil {
			if c.Reply = replies[i]; c.Reply == nil {
				c.Err = redis.Nil
			}
		}
	}
	for _, f := range failures {
		u.calls[f.call].Reply, u.calls[f.call].Err = nil, replyError(f.text)
	}
}

// failure is the error of one of the calls that a joint script has made.
type failure struct {
	call int
	text string
}

// split returns what a joint script has answered to so many calls. It is not ok when no joint script answers so.
func split(reply any, calls int) (replies []any, failures []failure, ok bool) {
	list, _ := reply.([]any)
	if len(list) == calls {
		return list, nil, true
	}
	if len(list) != calls+1 {
		return nil, nil, false
	}
	pairs, ok := list[calls].([]any)
	if !ok || len(pairs)%2 != 0 {
		return nil, nil, false
	}
	for ; len(pairs) > 0; pairs = pairs[2:] {
		position, ok1 := pairs[0].(int64)
		text, ok2 := pairs[1].(string)
		if !ok1 || !ok2 || position < 1 || int(position) > calls {
			return nil, nil, false
		}
		failures = append(failures, failure{int(position) - 1, text})
	}
	return list[:calls], failures, true
}

// replyError is an error that a server has answered to one of several calls.
type replyError string

func (e replyError) Error() string { return string(e) }

// RedisError marks it as a [redis.Error].
func (replyError) RedisError() {}

// unknown reports whether the server did not know the script.
func (u *unit) unknown() bool { return redis.HasErrorPrefix(u.err, "NOSCRIPT") }

// refused reports whether the server has refused to make several calls together.
func (u *unit) refused() bool { return len(u.calls) > 1 && isReply(u.err) }

// isReply reports whether an error is one that the server has answered.
func isReply(err error) bool {
	_, ok := errors.AsType[redis.Error](err)
	return ok
}
