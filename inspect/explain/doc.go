// Package explain says why a task of asynq does not run: what holds it up, for how long at most, and what to do.
//
// [Task] gathers facts from Redis and decides. It changes nothing.
package explain
