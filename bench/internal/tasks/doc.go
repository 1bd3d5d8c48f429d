// Package tasks lets asynq workers do tasks that want the same keys, each contestant in its own way, and counts what came of it:
// how long it took, how often each task had to be started, and whether two tasks of a key ran at the same time.
//
// A [Scenario] is a list of tasks, a [Contestant] a way to work on it, and [Run] puts both together on a redis-server of their own.
// [Measure] does so with all of them: it is this part of the benchmark's report.
package tasks
