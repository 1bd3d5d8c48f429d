// Package crashtest has no code: its tests stop a worker, or a producer, before and after each step that it takes in
// Redis, one step per run, and check how the next worker carries on from there. Everything happens in virtual time.
package crashtest
