package lanes

import _ "embed"

// ReadyChannel has the name of each queue in a lane into which a task has come while no other was pending there.
const ReadyChannel = "railtoken:ready"

// Functions is Lua for scripts that put tasks into queues: the function ready, which tells ReadyChannel of them.
//
//go:embed lua/ready.lua
var Functions string
