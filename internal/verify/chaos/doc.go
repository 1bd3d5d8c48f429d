// Package chaos runs locks in client processes while a nemesis breaks servers, networks and clients at random, and judges from outside
// what the clients have seen and what the resource has kept. "make chaos" runs it for long and writes its part of docs/reliability.md.
// Package tasks does the same with workers and their tasks.
//
// The clients are those of [Subjects]: railtoken's Redlock on five servers, and controls that lack a part of it, which must show damage:
// otherwise the run proves nothing. Its files go from what is planned (plan.go, admissible.go) over what is run (client.go, subject.go,
// network.go, ledger.go) to what is judged (history.go, linearizable.go, report.go).
package chaos
