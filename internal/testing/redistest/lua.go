package redistest

import lua "github.com/yuin/gopher-lua"

// The fake makes a Lua interpreter for each script that it runs, and most of what that costs is its stack: 80 kB, of which a script of a
// few lines uses next to nothing. These hold what scripts of a thousand arguments need; one that needs more is told of an overflow.
func init() {
	lua.RegistrySize = 2048
	lua.CallStackSize = 64
}
