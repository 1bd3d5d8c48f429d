// Package prometheus exports railtoken's metrics to Prometheus: how often tasks meet a held key, how long they wait, how
// long keys are held, which leases were lost, and the state of the lock servers. It is a module of its own.
//
//	import metrics "github.com/railtoken/railtoken/metrics/prometheus"
//
//	collector := metrics.New(metrics.Options{Inspector: inspector})
//	prometheus.MustRegister(collector)
//	cfg.Observer = collector.Observe // of worker.Config, attach.Options or attach.ProducerOptions
//
// The counters and histograms have the labels type and queue, and no metric ever has a business key as a label. The
// rules folder contains alerts, and the grafana folder contains a dashboard: docs/operations.md says what each alert
// means.
//
//	railtoken_attempts_total{type,queue,outcome}      runs: acquired, held (ended in conflict), unavailable
//	railtoken_waits_total{type,queue}                 waits that have begun
//	railtoken_conflicts_total{type,queue,outcome}     parked, waited (and got its keys), failed, limit
//	railtoken_wakes_total{queue,by}                   release, repair, timer
//	railtoken_wakes_lost_total{queue}                 not woken although their keys and a slot were free
//	railtoken_cancelled_total{type,queue}             runs that have ended because their tasks were cancelled
//	railtoken_superseded_total{type,queue}            payloads in place of which a newer one runs
//	railtoken_leases_lost_total{type,queue,reason}    taken, expired, max_hold, deposed
//	railtoken_wait_seconds{type,queue}                from the first conflict until the handler runs
//	railtoken_hold_seconds{type,queue}                how long a handler held its keys
//	railtoken_wake_seconds{type,queue}                from the release that lets a waiting task run until its handler starts
//	railtoken_acquire_seconds{backend}                the attempt that locked the keys of a task
//	railtoken_parked                                  parked tasks, on any key
//	railtoken_oldest_wait_seconds                     age of the longest wait
//	railtoken_slots_waiting                           slots in which tasks wait, of all workers
//	railtoken_node_votes{node}                        1 if a lock server answers and, in a Redlock, may vote
//	railtoken_node_quarantine_seconds{node}           until a lock server may vote
//	railtoken_inspect_up                              1 if Redis answered when the gauges were read
//	railtoken_unreachable_seconds{server}             how long the Redis of the tasks, or the locks, have not answered
//
// A wake is measured for tasks that were parked and found their keys free, that waited in their slots and were notified of the
// release, or that waited in memory and were handed the lease. An acquisition is not measured when the locks come with the
// task, or were handed off or collected. The label backend is redis, redlock, or the package name
// of any other backend.
//
// The time for which servers are unreachable is that of the workers of the process, which Observe learns of when they start.
// The label server is tasks or locks. The time grows while calls hang or are refused, and is below 6 s otherwise. A scrape
// takes a lock that no task wants, at most once a second.
//
// The other gauges need an Inspector. They describe the whole installation, so every process that exports them has the same
// values: use max, not sum. A scrape makes about eight calls to Redis, at most once in 5 s, and waits for them for at most
// 2 s. When more than 10 000 tasks wait, the oldest wait is taken from the 10 000 tasks that have gone longest without
// trying their keys.
package prometheus
