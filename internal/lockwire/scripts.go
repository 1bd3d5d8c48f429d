package lockwire

import (
	_ "embed"

	"github.com/railtoken/railtoken/internal/rediswire"
)

//go:embed lua/locks.lua
var locksSource string

// Script returns a script that may call the functions of lua/locks.lua.
func Script(source string) string { return rediswire.Compose(locksSource, source) }

// The scripts that are one of these functions. Their KEYS are its keys, and their ARGV its other arguments.
var (
	Acquire  = Script("return acquire(KEYS, 1, #KEYS, unpack(ARGV))")
	Renew    = Script("return renew(KEYS, 1, #KEYS, unpack(ARGV))")
	Release  = Script("return release(KEYS, 1, #KEYS, unpack(ARGV))")
	Abandon  = Script("return abandon(KEYS, 1, #KEYS, unpack(ARGV))")
	Depose   = Script("return depose(KEYS, unpack(ARGV))")
	Snapshot = Script("return snapshot(KEYS)")
)
