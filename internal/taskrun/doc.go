// Package taskrun is what attach, worker, items and middleware agree on about a task's run: its limits, the Locker that the
// tasks of a server share, its items, and how an observer is called.
package taskrun
