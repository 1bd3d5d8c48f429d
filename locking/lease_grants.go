package locking

import "github.com/railtoken/railtoken/internal/lockhook"

func init() {
	lockhook.GrantsOf = func(lease any) []any {
		return lease.(*Lease).grants() //nolint:errcheck,forcetypeassert // every caller has a Lease
	}
}

// grants returns the grants of a lease: see [lockhook.GrantsOf].
func (l *Lease) grants() []any {
	joined, ok := l.grant.(*joinedGrant)
	if !ok {
		return []any{l.grant}
	}
	var all []any
	for _, part := range joined.parts {
		all = append(all, part.grants()...)
	}
	return all
}
