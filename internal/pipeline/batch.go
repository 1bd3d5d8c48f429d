package pipeline

import (
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"
)

// minBatch is the smallest number of calls in a batch: two calls cost as much in a batch as in two commands.
const minBatch = 3

// minJoint is the smallest number of calls of a joint script in a batch: it makes a single call no dearer.
const minJoint = 2

// BatchScript is a script that makes several calls in one command. About half of a server's time for a script call is a
// fixed cost, whatever the script does. The calls are those of other scripts ([Script.In]), or of the script itself
// ([Script.Joint]).
//
// In the first case its KEYS are those of all calls, in order. Its first ARGV is a string with a byte for each call: the
// code of the call's script plus the number of the call's arguments. The arguments of all calls follow. In the second
// case its ARGV are those of all calls, one after another, and its KEYS are those of all calls, then the keys that they
// share.
//
// The script returns the list of the replies. If calls have failed, one more list has the position (from 1) and the text
// of each error. These are not error replies, because go-redis 9.23 stops reading a list at an error that it has a type
// for, such as OOM. After an error of the whole command the calls may be made again.
type BatchScript struct {
	script *Script
	keys   int  // of each call, unless it is joint
	joint  bool // makes calls of its own
	shared int  // how many keys of a joint call, its last ones, are those of every call
}

// NewBatchScript returns the batch script with the given source, for calls with that many keys each.
func NewBatchScript(source string, keys int) *BatchScript {
	return &BatchScript{script: NewScript(source), keys: keys}
}

// In lets b make those calls of s that have the number of keys that b is for. The code identifies s. In returns s, and
// must be called before the first call.
func (s *Script) In(b *BatchScript, code byte) *Script {
	s.batch, s.code = b, code
	return s
}

// Joint lets calls of s share a command; the reply is a list also for one call alone. The last keys of every call are the
// same, as many as shared says, and are sent once. Joint returns s, and must be called before the first call.
func (s *Script) Joint(shared int) *Script {
	s.batch = &BatchScript{script: s, joint: true, shared: shared}
	return s
}

// batch is what one command of a pipeline does: one call, or several by a batch script.
type batch struct {
	calls   []*Call
	command Command
	err     error // of the command as a whole
}

// batches returns the commands that make the calls of a pipeline. It makes a batch of least or more calls for the same
// batch script, or no batch at all if least is 0. Calls with a key in common stay in order.
func batches(calls []*Call, least int) []batch {
	if least == 0 {
		return appendSingles(make([]batch, 0, len(calls)), calls)
	}
	script := calls[0].command.batch()
	same := 0 // how many calls at the beginning are for one batch script; nearly always all
	for same < len(calls) && script != nil && calls[same].command.batch() == script {
		same++
	}
	if same == len(calls) {
		return appendBatch(nil, script, calls, least)
	}
	var all []batch
	open := slices.Clone(calls[:same]) // the calls of the batch that will be appended next
	for i, c := range calls[same:] {
		own := c.command.batch()
		if len(open) > 0 && own != script && (own != nil || meets(c, open)) {
			all = appendBatch(all, script, open, least)
			open = nil
		}
		if own == nil {
			all = appendSingles(all, calls[same+i:same+i+1])
			continue
		}
		script = own
		open = append(open, c)
	}
	return appendBatch(all, script, open, least)
}

// appendSingles adds a batch for each call.
func appendSingles(all []batch, calls []*Call) []batch {
	for i, c := range calls {
		all = append(all, batch{calls: calls[i : i+1], command: c.command})
	}
	return all
}

// appendBatch adds one batch for all calls if there are enough of them, otherwise a batch for each call.
func appendBatch(all []batch, script *BatchScript, calls []*Call, least int) []batch {
	if script != nil && script.joint {
		least = minJoint
	}
	if len(calls) < max(least, 2) {
		return appendSingles(all, calls)
	}
	return append(all, batch{calls: calls, command: script.command(calls)})
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
func (b *BatchScript) command(calls []*Call) Command {
	if b.joint {
		return b.join(calls)
	}
	size, codes := 4, make([]byte, len(calls))
	for i, c := range calls {
		size += len(c.command.args) - 3
		codes[i] = c.command.script.code + byte(len(c.command.ownArgs()))
	}
	args := append(make([]any, 0, size), evalsha, b.script.sha, b.keys*len(calls))
	for _, c := range calls {
		args = append(args, c.command.keyArgs()...)
	}
	args = append(args, string(codes))
	for _, c := range calls {
		args = append(args, c.command.ownArgs()...)
	}
	return Command{script: b.script, args: args, keys: b.keys * len(calls)}
}

// join returns the command that makes all of the calls of a joint script.
func (b *BatchScript) join(calls []*Call) Command {
	size, keys := 3+b.shared, b.shared
	for _, c := range calls {
		size += len(c.command.args) - 3 - b.shared
		keys += c.command.keys - b.shared
	}
	args := append(make([]any, 0, size), evalsha, b.script.sha, keys)
	for _, c := range calls {
		own := c.command.keyArgs()
		args = append(args, own[:len(own)-b.shared]...)
	}
	last := calls[0].command.keyArgs()
	args = append(args, last[len(last)-b.shared:]...)
	for _, c := range calls {
		args = append(args, c.command.ownArgs()...)
	}
	return Command{script: b.script, args: args, keys: keys}
}

// answer gives each call its part of the answer.
func (b *batch) answer(reply any, err error) {
	b.err = err
	if len(b.calls) == 1 && (err != nil || !b.command.script.isJoint()) {
		b.calls[0].Reply, b.calls[0].Err = reply, err
		return
	}
	replies, failures, ok := split(reply, len(b.calls))
	if err == nil && !ok {
		err = fmt.Errorf("no replies to %d calls: %v", len(b.calls), reply)
	}
	for i, c := range b.calls {
		c.Reply, c.Err = nil, err
		if err == nil {
			if c.Reply = replies[i]; c.Reply == nil {
				c.Err = redis.Nil
			}
		}
	}
	for _, f := range failures {
		b.calls[f.call].Reply, b.calls[f.call].Err = nil, replyError(f.text)
	}
}

// failure is the error of one of the calls of a batch.
type failure struct {
	call int
	text string
}

// split returns the replies and failures in a reply of a batch script to that many calls. ok is false if the reply is
// malformed.
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

// replyError is a server's error reply to one call of a batch.
type replyError string

func (e replyError) Error() string { return string(e) }

// RedisError marks it as a [redis.Error].
func (replyError) RedisError() {}

// unknown reports whether the server did not know the script.
func (b *batch) unknown() bool { return redis.HasErrorPrefix(b.err, "NOSCRIPT") }

// refused reports whether the server has refused to execute several calls in one command.
func (b *batch) refused() bool { return len(b.calls) > 1 && isReply(b.err) }

// isReply reports whether an error is a server's reply.
func isReply(err error) bool {
	_, ok := errors.AsType[redis.Error](err)
	return ok
}
