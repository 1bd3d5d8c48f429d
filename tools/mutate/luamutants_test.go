package main

import (
	"slices"
	"strings"
	"testing"
)

const luaSource = `-- a < b in a comment
local function take(keys, at)
  local text = 'if a < b' --[[ long
  a < b ]]
  if keys[at + 1] < 3 and not text then
    redis.call('DEL', keys[1])
    return {at, text}
  end
  at = -1
  for i = 1, 2 do
    break
  end
  return true
end
`

func TestEachLuaOperatorHasItsMutants(t *testing.T) {
	t.Parallel()
	mutants, err := mutateLua("take.lua", luaSource)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range mutants {
		got = append(got, m.Func+" "+m.Operator+": "+m.change())
		if strings.Contains(m.Text, "--") {
			t.Errorf("a comment or a string has a mutant: %s", &m.mutant)
		}
	}
	for _, want := range []string{
		"take boundary: ] < 3 => ] <= 3", "take condition negated: ] < 3 => ] >= 3", "take arithmetic: at + 1 => at - 1",
		"take constant: + 1] => + 2]", "take constant: + 1] => + 0]", "take and for or: 3 and not => 3 or not",
		"take condition negated: and not text => and text", "take branch left out: keys[at + 1] < 3 and not text => false",
		"take statement left out: redis.call('DEL', keys[1]) => do end", "take value left out: return {at, text} => return nil",
		"take statement left out: at = -1 => do end", "take statement left out: do break end => do do end end",
		"take constant: return true end => return false end",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no mutant %q", want)
		}
	}
	if t.Failed() {
		t.Log(strings.Join(got, "\n"))
	}
}

func TestTheFirstPositionStays(t *testing.T) {
	t.Parallel()
	mutants, err := mutateLua("take.lua", "return string.sub(take(text, 1), 1, 1), string.find(text, f(text, 1), 1, true)\n")
	if err != nil {
		t.Fatal(err)
	}
	var zeros int
	for _, m := range mutants {
		if m.edit.text == "0" {
			zeros++
		}
	}
	if zeros != 3 { // of two calls that are not of string, and of an end
		t.Errorf("%d ones become 0", zeros)
	}
}

func TestEveryLuaMutantIsLua(t *testing.T) {
	t.Parallel()
	mutants, err := mutateLua("take.lua", luaSource)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		if changed := (&edits{m.edit}).apply(luaSource); changed == luaSource || !isLua(changed) {
			t.Errorf("%s:\n%s", &m.mutant, changed)
		}
	}
}
