// Package releasehook lets the packages of this module follow the releases of locks, without an exported name in
// package locking.
package releasehook

// Follow returns a locking.Locker in front of another one. It calls released with the keys of each lease that it has
// granted, before Release returns, if another caller may wait for one of them: Lease.ShouldNotify is true. It does not
// call released if a Gate has handed the lease off, because the keys are still locked then. Package locking sets
// Follow.
var Follow func(locker any, released func(keys []string)) any
