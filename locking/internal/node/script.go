package node

import (
	"crypto/sha1" //nolint:gosec // the name that Redis gives to a script
	"encoding/hex"
)

// Script is a Lua script that servers keep by its SHA-1.
type Script struct {
	source string
	sha    any // a string, boxed once
}

// NewScript returns the script with that source.
func NewScript(source string) *Script {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // see above
	return &Script{source: source, sha: hex.EncodeToString(sum[:])}
}

// evalsha is a boxed constant.
var evalsha any = "evalsha"

// counts are boxed numbers of keys.
var counts = func() (boxed [64]any) {
	for i := range boxed {
		boxed[i] = i
	}
	return boxed
}()

// Command is a call of a script as it is sent. Several calls may share it.
type Command struct {
	script *Script
	args   []any
}

// Empty reports whether the command is the zero value.
func (c Command) Empty() bool { return c.script == nil }

// Command returns the command that calls the script.
func (s *Script) Command(keys []string, args ...any) Command {
	return Command{script: s, args: s.command(keys, args)}
}

// command returns the arguments of a call of the script.
func (s *Script) command(keys []string, args []any) []any {
	command := make([]any, 0, 3+len(keys)+len(args))
	if len(keys) < len(counts) {
		command = append(command, evalsha, s.sha, counts[len(keys)])
	} else {
		command = append(command, evalsha, s.sha, len(keys))
	}
	for _, key := range keys {
		command = append(command, key)
	}
	return append(command, args...)
}
