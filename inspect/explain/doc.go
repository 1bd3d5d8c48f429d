// Package explain says why an asynq task does not run: what holds it up, for how long at most, and what to do about it.
//
// [Task] gathers facts from Redis, and finds the cause in them. It changes nothing. If the locks are in a store other
// than Redis, a holder is known only from its worker's report: for a key that has been held for less than 5 s the cause
// may be [KeyFree].
package explain
