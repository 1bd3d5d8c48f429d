package lanes

import (
	_ "embed"
	"strconv"
)

// ReadyChannel returns the channel of a lane. It has the name of each queue in the lane into which a task has come while no other was
// pending there. It is followed on the master of the lane, which tells its own subscribers at once: what other masters publish goes
// through the bus of the Cluster, which holds it up for 40 ms now and then (Redis 7.0).
func ReadyChannel(lane int) string { return "railtoken:ready:" + strconv.Itoa(lane) }

// Functions is Lua for scripts that put tasks into queues: the function ready, which tells ReadyChannel of them.
//
//go:embed lua/ready.lua
var Functions string
