package locking

import "github.com/railtoken/railtoken/internal/leasegrants"

func init() {
	leasegrants.Of = func(lease any) []any {
		return lease.(*Lease).grants() //nolint:errcheck,forcetypeassert // every caller has a Lease
	}
}

// grants returns the grants of a lease: see [leasegrants.Of].
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
