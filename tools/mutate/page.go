package main

import (
	"fmt"
	"strings"
)

const pageHead = `# Mutation

` + "`make mutate`" + ` writes this page. It changes one small thing at a time in the sources, a comparison, a constant, a statement, and
runs the tests: a change that no test notices is a promise that nothing holds. Of large packages it tries a sample, which ` + "`SEED`" + `
chooses.

| Target | Mutants | Tried | Killed | of these by time | Equivalent | Alive | Killed of those that matter |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
`

const pageWords = `
A mutant is *equivalent* if nothing that a caller can see depends on the change; it counts neither as killed nor as alive. One that is
killed *by time* has kept the tests from ending; where it was not confirmed that they end without it, it does not count in the last
column (*≥*). Tests that ` + "`-short`" + ` leaves out are not run.

What no test can see is not changed: what is logged, how much room is kept for a slice or a map, the end of a timer or a context that
ends by itself, and the position 1 at which Lua's ` + "`string.find`" + ` and ` + "`string.sub`" + ` start, which is the same as 0.
`

// page returns the page of all summaries.
func page(all []summary) string {
	var out strings.Builder
	out.WriteString(pageHead)
	for _, s := range all {
		out.WriteString(s.row() + "\n")
	}
	out.WriteString(pageWords)
	for _, s := range all {
		if len(s.Survivors) == 0 {
			continue
		}
		fmt.Fprintf(&out, "\n## %s: survivors\n\n| Where | Change | Why |\n| --- | --- | --- |\n", s.Target)
		for _, one := range s.Survivors {
			reason := one.Reason
			if reason == "" {
				reason = "not explained yet, " + one.Outcome
			}
			where := one.File
			if one.Func != "" {
				where += ", " + one.Func
			}
			fmt.Fprintf(&out, "| %s | %s: %s | %s |\n", where, one.Operator, code(one.Change), cell(reason))
		}
	}
	return out.String()
}

// code returns source for a cell of a table.
func code(source string) string { return "`` " + cell(source) + " ``" }

// cell returns text for a cell of a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
