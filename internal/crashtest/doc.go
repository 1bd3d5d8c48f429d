// Package crashtest has no code: its tests stop a worker, or who enqueues for it, before and after the steps that it takes in Redis, one step
// in each run, and look at what the next worker makes of what it finds. All of it happens in virtual time.
package crashtest
