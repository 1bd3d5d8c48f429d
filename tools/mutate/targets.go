package main

import (
	"slices"
	"strings"
)

// target is a part of the repository whose tests are tried.
type target struct {
	name string
	// folder has the sources. For Lua there may be several: they are all of the scripts that one suite tests.
	folders []string
	lua     bool
	whole   bool     // small enough to try every mutant
	files   []string // only these, if there are any
	tests   []string // the folders of the tests, those of the next one are tried on what survives
}

// targets are all of them, in the order of the report.
var targets = []target{
	{name: "quorum", whole: true, folders: []string{"internal/quorum"}, tests: []string{"internal/quorum"}},
	{
		name: "strategies", folders: []string{"middleware"}, tests: []string{"middleware", "attach"},
		files: []string{
			"decide.go", "failfast.go", "order.go", "outcome.go", "requeue.go", "slotbudget.go", "strategy.go", "supersede.go",
			"wait.go", "wait_in_slot.go",
		},
	},
	{name: "restartguard", folders: []string{"internal/restartguard"}, tests: []string{"internal/restartguard", "locking"}},
	{name: "broker", folders: []string{"internal/broker"}, tests: []string{"internal/broker", "internal/broker/intake", "attach", "middleware"}},
	{
		name: "intake", folders: []string{"internal/broker/intake"},
		tests: []string{"internal/broker/intake", "internal/broker", "middleware", "attach"},
	},
	{
		name: "line", folders: []string{"internal/line"},
		tests: []string{"internal/line", "delayqueue", "middleware", "attach", "inspect", "internal/verify/crashtest"},
	},
	{
		name: "lua-locks", lua: true, folders: []string{"internal/lockwire/lua", "locking/lua", "internal/restartguard/lua", "fence/lua"},
		tests: []string{"internal/lockwire", "internal/restartguard", "fence", "fence/integration", "locking"},
	},
	{
		name: "lua-broker", lua: true, folders: []string{"internal/broker/lua", "internal/broker/intake/lua"},
		tests: []string{"internal/broker/intake", "internal/line", "internal/broker", "middleware", "attach"},
	},
	{
		name: "lua-line", lua: true, folders: []string{"internal/line/lua"},
		tests: []string{"internal/line", "delayqueue", "middleware", "attach", "inspect", "internal/verify/crashtest"},
	},
	{
		name: "lua-ends", lua: true, folders: []string{"internal/ends/lua", "internal/holdings/lua", "items/lua"},
		tests: []string{"internal/ends", "internal/holdings", "attach", "internal/broker", "items"},
	},
}

// uses reports whether a file belongs to the target.
func (t target) uses(name string) bool {
	return !strings.HasSuffix(name, "_test.go") && (len(t.files) == 0 || slices.Contains(t.files, name))
}
