package leasing

// OnRelease returns a locking.Locker in front of another one. It calls released with the keys of each lease that it has
// granted, before Release returns, if another caller may wait for one of them: Lease.ShouldNotify is true. It does not
// call released if a Gate has handed the lease off, because the keys are still locked then. Package attach wakes tasks
// with it that wait for the keys of leases outside of tasks.
var OnRelease func(locker any, released func(keys []string)) any

// OnLateRelease has freed called with keys that a locking.Locker has released only after its caller had its answer, if
// another caller may wait for one of them: those of an attempt that was given back, or of a release that was answered
// late. It does so until stop is called, and before Close of the Locker returns.
var OnLateRelease func(locker any, freed func(keys []string)) (stop func())
