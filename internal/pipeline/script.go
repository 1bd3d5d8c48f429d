package pipeline

import (
	"crypto/sha1" //nolint:gosec // the name that Redis gives to a script
	"encoding/hex"
)

// Script is a Lua script, which servers cache under its SHA-1.
type Script struct {
	source string
	sha    any          // a string, boxed once
	batch  *BatchScript // can make calls of this script; may be nil
	code   byte         // of this script in batch

	newcomer bool // calls yield to those of other scripts
}

// NewScript returns the script with the given source.
func NewScript(source string) *Script {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // see above
	return &Script{source: source, sha: hex.EncodeToString(sum[:])}
}

// ForNewcomers makes calls of s yield to queued calls of other scripts: calls that acquire yield to those that renew or
// release. It returns s, and must be called before the first call.
func (s *Script) ForNewcomers() *Script {
	s.newcomer = true
	return s
}

// evalsha is a boxed constant.
var evalsha any = "evalsha"

// counts holds boxed numbers of keys.
var counts = func() (boxed [64]any) {
	for i := range boxed {
		boxed[i] = i
	}
	return boxed
}()

// Command holds the arguments of a script call. Several calls may share it.
type Command struct {
	script *Script
	args   []any
	keys   int
}

// Empty reports whether the command is the zero value.
func (c *Command) Empty() bool { return c.script == nil }

// Command returns a command that calls the script with keys, and has room for that many arguments.
func (s *Script) Command(keys []string, room int) Command { return s.CommandOf(room, keys) }

// CommandOf returns a command that calls the script with the keys of several lists. It has room for that many arguments.
func (s *Script) CommandOf(room int, keys ...[]string) Command {
	n := 0
	for _, list := range keys {
		n += len(list)
	}
	c := Command{script: s, args: make([]any, 0, 3+n+room), keys: n}
	c.args = append(c.args, evalsha, s.sha)
	if n < len(counts) {
		c.args = append(c.args, counts[n])
	} else {
		c.args = append(c.args, n)
	}
	for _, list := range keys {
		for _, key := range list {
			c.args = append(c.args, key)
		}
	}
	return c
}

// Like returns a command that calls the script with the keys and the first argument of another command, and has room
// for that many more arguments. It costs less than Command.
func (s *Script) Like(other *Command, room int) Command {
	c := Command{script: s, args: make([]any, 0, 4+other.keys+room), keys: other.keys}
	c.args = append(c.args, evalsha, s.sha)
	c.args = append(c.args, other.args[2:4+other.keys]...)
	return c
}

// Add adds arguments.
func (c *Command) Add(args ...any) { c.args = append(c.args, args...) }

// With returns a copy of the command with more arguments.
func (c *Command) With(args ...any) Command {
	return Command{script: c.script, keys: c.keys, args: append(c.args[:len(c.args):len(c.args)], args...)}
}

// keyArgs returns the keys.
func (c *Command) keyArgs() []any { return c.args[3 : 3+c.keys] }

// ownArgs returns the arguments that follow the keys.
func (c *Command) ownArgs() []any { return c.args[3+c.keys:] }

// batch returns the batch script that can make this call, or nil.
func (c *Command) batch() *BatchScript {
	if b := c.script.batch; b.isJoint() || b != nil && c.keys == b.keys {
		return b
	}
	return nil
}

// eval returns the arguments of a command that sends the source of the script.
func (c *Command) eval() []any {
	return append([]any{"eval", c.script.source}, c.args[2:]...)
}
