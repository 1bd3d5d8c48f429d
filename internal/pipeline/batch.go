package pipeline

import (
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/rediswire"
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
// case its KEYS are those of all calls, then those of the command's [Share]. Its first ARGV is the number of calls; the
// arguments of the Share follow, then those of all calls.
//
// The script returns the list of the replies, and in the second case one more reply, to the Share. If calls have failed,
// one more list has the position (from 1) and the text of each error. These are not error replies, because go-redis 9.23
// stops reading a list at an error that it has a type for, such as OOM. After an error of the whole command the calls may
// be made again.
type BatchScript struct {
	script *Script
	keys   int                   // of each call, unless it is joint
	share  func(calls int) Share // of a joint script, which makes calls of its own; else nil
}

// Share is what a command of a joint script does beside its calls.
type Share struct {
	Keys []string
	Args []any
	// Answered is called with the reply to it, or the error of the command, before the calls are answered.
	Answered func(reply any, err error)
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

// Joint lets calls of s share a command, which may be that of one call. share is called just before each command is sent,
// with the number of its calls. Joint returns s, and must be called before the first call.
func (s *Script) Joint(share func(calls int) Share) *Script {
	s.batch = &BatchScript{script: s, share: share}
	return s
}

// With returns s with calls that may share a command, as [Script.Joint] does, and leaves s as it is.
func (s *Script) With(share func(calls int) Share) *Script {
	script := *s
	return script.Joint(share)
}

// batch is what one command of a pipeline does: one call, or several by a batch script.
type batch struct {
	calls    []*Call
	command  Command
	answered func(reply any, err error) // of its Share; may be nil
	reply    any                        // to its Share
	err      error                      // of the command as a whole
}

// newBatch returns the command that makes all of the calls by their batch script, or a single call.
func newBatch(calls []*Call) batch {
	b := batch{calls: calls, command: calls[0].command}
	switch script := b.command.batch(); {
	case script.isJoint():
		share := script.share(len(calls))
		b.command, b.answered = script.join(calls, share), share.Answered
	case len(calls) > 1:
		b.command = script.command(calls)
	}
	return b
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
	for i := range calls {
		all = append(all, newBatch(calls[i:i+1]))
	}
	return all
}

// appendBatch adds one batch for all calls if there are enough of them, otherwise a batch for each call.
func appendBatch(all []batch, script *BatchScript, calls []*Call, least int) []batch {
	if script.isJoint() {
		least = minJoint
	}
	if len(calls) < max(least, 2) {
		return appendSingles(all, calls)
	}
	return append(all, newBatch(calls))
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

// isJoint reports whether b makes calls of its own. It may be nil.
func (b *BatchScript) isJoint() bool { return b != nil && b.share != nil }

// command returns the command that makes all of the calls.
func (b *BatchScript) command(calls []*Call) Command {
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
func (b *BatchScript) join(calls []*Call, share Share) Command {
	size, keys := 4+len(share.Keys)+len(share.Args), len(share.Keys)
	for _, c := range calls {
		size += len(c.command.args) - 3
		keys += c.command.keys
	}
	args := append(make([]any, 0, size), evalsha, b.script.sha, keys)
	for _, c := range calls {
		args = append(args, c.command.keyArgs()...)
	}
	for _, key := range share.Keys {
		args = append(args, key)
	}
	args = append(append(args, len(calls)), share.Args...)
	for _, c := range calls {
		args = append(args, c.command.ownArgs()...)
	}
	return Command{script: b.script, args: args, keys: keys}
}

// answer gives each call its part of the answer.
func (b *batch) answer(reply any, err error) {
	b.reply, b.err = nil, err
	if len(b.calls) == 1 && b.answered == nil {
		b.calls[0].Reply, b.calls[0].Err = reply, err
		return
	}
	shares := 0
	if b.answered != nil {
		shares = 1
	}
	replies, failures, ok := split(reply, len(b.calls), shares)
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
	if b.answered != nil {
		b.reply, b.err = nil, err
		if err == nil {
			b.reply = replies[len(b.calls)]
		}
	}
}

// conclude tells the batch's Share its answer.
func (b *batch) conclude() {
	if b.answered != nil {
		b.answered(b.reply, b.err)
	}
}

// failure is the error of one of the calls of a batch.
type failure struct {
	call int
	text string
}

// split reads the reply of a batch script: the replies to its calls and shares, and the failures of the calls. ok is false
// if the reply is malformed.
func split(reply any, calls, shares int) (replies []any, failures []failure, ok bool) {
	list, _ := reply.([]any)
	if len(list) == calls+shares {
		return list, nil, true
	}
	if len(list) != calls+shares+1 {
		return nil, nil, false
	}
	pairs, ok := list[calls+shares].([]any)
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
	return list[:calls+shares], failures, true
}

// replyError is a server's error reply to one call of a batch.
type replyError string

func (e replyError) Error() string { return string(e) }

// RedisError marks it as a [redis.Error].
func (replyError) RedisError() {}

// unknown reports whether the server did not know the script.
func (b *batch) unknown() bool { return rediswire.Says(b.err, rediswire.NoScript) }

// refused reports whether the server has refused to execute several calls in one command.
func (b *batch) refused() bool { return len(b.calls) > 1 && isReply(b.err) }

// isReply reports whether an error is a server's reply.
func isReply(err error) bool {
	_, ok := errors.AsType[redis.Error](err)
	return ok
}
