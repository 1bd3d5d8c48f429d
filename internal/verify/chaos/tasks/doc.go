// Package tasks runs asynq's tasks in worker processes on a Redis behind Sentinel while a nemesis breaks servers, networks and workers at
// random, and judges from outside what the ledger has kept. "make chaos" runs it for long and writes its part of docs/reliability.md.
//
// The workers are those of [Subjects]: railtoken with every strategy, and controls that lack a part of it, which must show damage. Its
// files go from what is planned (kind.go, plan.go, admissible.go) over what is run (subject.go, worker.go, handler.go, ledger.go,
// producer.go, outbox.go) to what is judged (judge.go, report.go).
package tasks
