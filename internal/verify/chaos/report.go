package chaos

import (
	"fmt"
	"strings"
	"time"
)

// Row is what a run has shown of a subject.
type Row struct {
	Subject Subject
	Events  int
	// Leases is how many there were, Lost how many of them have ended before their release, or with their client, and Refused how many
	// writes the ledger has refused.
	Leases, Lost, Refused int
	// Accepted is how many updates the ledger has accepted.
	Accepted int
	// The damage: tokens that were there before, tokens below that of an earlier lease, updates that another one has overwritten, updates
	// that came after one with a larger token, and keys whose leases cannot have followed one another.
	Duplicates, Disordered, LostUpdates, Late, AtOnce int
}

// Damage counts it.
func (r Row) Damage() int { return r.Duplicates + r.Disordered + r.LostUpdates + r.Late + r.AtOnce }

// String is the row in words.
func (r Row) String() string {
	return fmt.Sprintf("%s: %d events, %d leases (%d lost), %d updates, %d refused; %d duplicate and %d disordered tokens, %d lost and %d late updates, %d keys with two holders",
		r.Subject.Name, r.Events, r.Leases, r.Lost, r.Accepted, r.Refused, r.Duplicates, r.Disordered, r.LostUpdates, r.Late, r.AtOnce)
}

const head = `
## Locks

Four client processes with four callers each share twelve keys on five
redis-servers. Up to three servers are bad at a time: then nobody gets a lock until a majority votes again. A clock steps only while all else is whole, and
was while the leases were taken that it may end: locks on several servers bear one clock that is wrong.

What happens:

- %s

**The judges.** A token is a *duplicate* if an earlier lease of its key had it, and *disordered* if a lease that had begun before it was asked
for has a larger one. An update is *lost* if another one has overwritten it: a client reads a revision when it comes, and writes the next one
in the end. It is *late* if the resource has accepted a larger token before. *Two holders* counts the keys whose leases, as far as their clients
believed in them, cannot have followed one another, which [porcupine](https://github.com/anishathalye/porcupine) decides.

**The controls** lack a part of it, and must show damage: otherwise the run proves nothing.

| Locks | Events | Leases | of these lost | Updates | Writes refused | Duplicates | Disordered | Lost updates | Late updates | Two holders |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
`

// Report writes its part of the page.
func Report(file string, rows []Row, took time.Duration) error {
	var kinds []string
	seen := map[Fault]bool{}
	for _, f := range faults {
		if !seen[f] {
			seen[f] = true
			kinds = append(kinds, string(f))
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, head, strings.Join(kinds, "\n- "))
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d |\n", r.Subject.Name, r.Events, r.Leases, r.Lost, r.Accepted,
			r.Refused, r.Duplicates, r.Disordered, r.LostUpdates, r.Late, r.AtOnce)
	}
	fmt.Fprintf(&b, "\nThe first row took %v, each control a sixth of that.\n", took)
	return WritePart(file, "locks", b.String())
}
