package chaos

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
)

// Never is the return of an operation without an answer, which may take effect at any time.
const Never = math.MaxInt64

// Kinds of records.
const (
	Begins  = "begins"  // a lease; Call and Return are those of the attempt
	Ends    = "ends"    // a lease; Call is when it ended at the latest by its client's clock, or when the release was called
	Commits = "commits" // a write that the resource has accepted
	Refused = "refused" // by the resource, for a larger token
)

// Record is what a client process tells of one step, as a line of JSON. Times are in nanoseconds, by the clock of the machine.
type Record struct {
	Kind   string `json:"kind"`
	Client int    `json:"client"`
	Key    string `json:"key"`
	Token  int64  `json:"token"`
	Call   int64  `json:"call"`
	Return int64  `json:"return"`
}

// Parse reads a line. ok is false if it is none: its process was killed while it wrote.
func Parse(line []byte) (r Record, ok bool) {
	return r, json.Unmarshal(line, &r) == nil && r.Kind != ""
}

// Tokens judges the tokens of all leases: duplicates are leases with the token of another one of the key, and disordered those that
// were asked for after a lease of the key had begun that has a larger token.
func Tokens(all []Record) (duplicates, disordered int) {
	for _, leases := range byKey(all, Begins) {
		seen := map[int64]bool{}
		for _, l := range leases {
			if seen[l.Token] {
				duplicates++
			}
			seen[l.Token] = true
		}
		byReturn := slices.SortedFunc(slices.Values(leases), func(a, b Record) int { return cmp.Compare(a.Return, b.Return) })
		slices.SortFunc(leases, func(a, b Record) int { return cmp.Compare(a.Call, b.Call) })
		largest, next := int64(0), 0
		for _, l := range leases {
			for ; next < len(byReturn) && byReturn[next].Return < l.Call; next++ {
				largest = max(largest, byReturn[next].Token)
			}
			if l.Token < largest {
				disordered++
			}
		}
	}
	return duplicates, disordered
}

// byKey returns the records of a kind by key.
func byKey(all []Record, kind string) map[string][]Record {
	keys := map[string][]Record{}
	for _, r := range all {
		if r.Kind == kind {
			keys[r.Key] = append(keys[r.Key], r)
		}
	}
	return keys
}

// Closed returns the records with an end for each lease that has none, because its client was killed: it may have ended at any time
// from its begin on.
func Closed(all []Record) []Record {
	type lease struct {
		key    string
		token  int64
		client int
	}
	ended := map[lease]int{}
	for _, r := range all {
		if r.Kind == Ends {
			ended[lease{r.Key, r.Token, r.Client}]++
		}
	}
	for _, r := range all {
		l := lease{r.Key, r.Token, r.Client}
		if r.Kind != Begins {
			continue
		}
		if ended[l] > 0 {
			ended[l]--
			continue
		}
		all = append(all, Record{Kind: Ends, Client: r.Client, Key: r.Key, Token: r.Token, Call: r.Return, Return: Never})
	}
	return all
}
