package doctor

import (
	"cmp"
	"slices"
)

// Finding is one thing that is wrong. Its JSON names do not change between releases.
type Finding struct {
	// Check is the name of the check: see [Checks].
	Check string `json:"check"`
	// Where is what the finding is about: a server, a queue, a key or a worker.
	Where string `json:"where"`
	// Key is the business key that it is about, if any, as it occurs in the texts below.
	Key string `json:"key,omitempty"`
	// What is wrong, what it costs, and how to mend it.
	What   string `json:"finding"`
	Cost   string `json:"cost"`
	Remedy string `json:"remedy"`
	// Command mends it, if there is one: for redis-cli if it begins with an upper-case word, otherwise for a shell.
	Command string `json:"command,omitempty"`
	// Advice says that nothing fails now: it is about what a fault would cost.
	Advice bool `json:"advice,omitempty"`
}

// Unchecked is a check that could not be made.
type Unchecked struct {
	Check string `json:"check"`
	Where string `json:"where"`
	Why   string `json:"why"`
}

// Report is the result of [Examine]. It is healthy if both are empty.
type Report struct {
	Findings  []Finding   `json:"findings"`
	Unchecked []Unchecked `json:"unchecked"`
}

// check is one check. A fleeting one may find what a working system passes through, so its findings count only if a
// second look confirms them.
type check struct {
	name     string
	fleeting bool
	find     func(Facts) []Finding
}

var checks = []check{
	{"unreachable", false, unreachable},
	{"writes", false, writes},
	{"version", false, version},
	{"role", false, role},
	{"commands", false, commands},
	{"acl", false, rules},
	{"votes", true, quorum},
	{"eviction", false, eviction},
	{"workers", true, workers},
	{"clock", false, clocks},
	{"asynq-scripts", true, scripts},
	{"database", false, databases},
	{"unserved", true, unserved},
	{"slots", true, slots},
	{"stuck", true, stuck},
	{"held", true, held},
	{"behind-failed", false, behindFailed},
	{"no-handler", false, unhandled},
	{"crowd", false, crowds},
	{"oldest-wait", false, oldestWait},
	{"ttl", true, ttl},
	{"max-hold", false, maxHold},
	{"mixed-orders", true, mixedOrders},
	{"orphans", true, orphans},
	{"latency", true, latency},
	{"hot-slot", false, hotSlot},
	{"persistence", false, persistence},
	{"same-server", false, sameServer},
	{"one-host", false, oneHost},
	{"tls", false, encryption},
	{"timeout", false, timeouts},
}

// Checks returns the names of all checks, the most urgent first. Findings are reported in this order, and advice after the others.
func Checks() []string {
	names := make([]string, len(checks))
	for i, c := range checks {
		names[i] = c.name
	}
	return names
}

// judge returns the findings of facts, without those of the skipped checks.
func judge(f Facts, skip []string) []Finding {
	var all []Finding
	for _, c := range checks {
		if slices.Contains(skip, c.name) {
			continue
		}
		found := c.find(f)
		slices.SortStableFunc(found, func(a, b Finding) int { return cmp.Compare(a.Where, b.Where) })
		for _, finding := range found {
			finding.Check = c.name
			all = append(all, finding)
		}
	}
	slices.SortStableFunc(all, func(a, b Finding) int {
		switch {
		case a.Advice == b.Advice:
			return 0
		case a.Advice:
			return 1
		default:
			return -1
		}
	})
	return all
}

// doubtful reports whether a second look is needed.
func doubtful(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return isFleeting(f.Check) })
}

// confirmed returns the findings of the second look, without the fleeting ones that the first did not have.
func confirmed(first, second []Finding) []Finding {
	return slices.DeleteFunc(second, func(f Finding) bool {
		return isFleeting(f.Check) && !slices.ContainsFunc(first, func(before Finding) bool {
			return before.Check == f.Check && before.Where == f.Where
		})
	})
}

func isFleeting(name string) bool {
	return slices.ContainsFunc(checks, func(c check) bool { return c.name == name && c.fleeting })
}
