// Package leasegrants lets the backends of this repository find their own grants in a lease, without an exported name in
// package locking.
package leasegrants

// Of returns the backend.Grants of a *locking.Lease: one, or several if the lease was joined of others. Package locking
// sets it.
var Of func(lease any) []any
