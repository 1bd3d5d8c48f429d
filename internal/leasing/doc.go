// Package leasing is what a lease is made of, without I/O: when it is renewed and when it ends (Term), which clock measures
// it, which durations users may configure, and the leases that a context carries.
package leasing
