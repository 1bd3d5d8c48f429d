package rediswire_test

import (
	"testing"

	"github.com/railtoken/railtoken/internal/rediswire"
)

func TestAScriptHasTheFunctionsThatItNeeds(t *testing.T) {
	t.Parallel()
	const library = `-- About it.
local a, b = 1, 2
local unused = 3

-- one() returns it.
local function one()
  if a then
    return b -- not two
  end
end

local function two()
end

local function three()
  return one()
end
`
	const one = "local function one()\n  if a then\n    return b -- not two\n  end\nend\n"
	for script, want := range map[string]string{
		"return 1":            "",
		"return two() -- one": "local function two()\nend\n",
		"return one()":        "local a, b = 1, 2\n" + one,
		"three()":             "local a, b = 1, 2\n" + one + "local function three()\n  return one()\nend\n",
	} {
		if got := rediswire.Compose(library, script); got != want+script {
			t.Errorf("%s: %q, want %q before it", script, got, want)
		}
	}
}
