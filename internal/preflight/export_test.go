package preflight

import "fmt"

// Commands returns the commands that are asked about.
func Commands(needs Needs) (names []string) {
	for _, p := range probesOf(needs) {
		names = append(names, fmt.Sprint(p.args[0]))
	}
	return names
}
