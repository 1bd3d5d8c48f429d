// Package explain says why an asynq task does not run: what holds it up, for how long at most, and what to do about it.
//
// [Task] gathers facts from Redis, and finds the cause in them. It changes nothing.
package explain
