// Package leasegrants lets package pglock find its own grants in a lease, for InTx, without an exported name in package
// locking.
package leasegrants

// Of returns the backend.Grants of a *locking.Lease: one, or several if the lease was joined of others. Package locking
// sets it.
var Of func(lease any) []any
