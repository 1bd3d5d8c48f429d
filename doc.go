// Package railtoken is the root of a framework that adds locks per business key to [asynq] workers: one business key,
// one token, one task at a time. Two tasks that work on the same order never run at the same time, whatever their
// types, queues and processes, and a task that has to wait uses up neither a worker slot nor a retry. This package has
// no code.
//
// # Start
//
// Package attach adds the locks to an existing asynq server:
//
//	locks, err := attach.New(rdb, cfg, attach.Options{}) // your go-redis client and your asynq.Config
//	...
//	lock := locks.Lock(middleware.PayloadKey(func(o order) string { return middleware.Key("order", o.ID) }))
//	srv := asynq.NewServerFromRedisClient(locks.Client(), locks.Config())
//	mux := asynq.NewServeMux()
//	mux.Handle("order:audit", lock(asynq.HandlerFunc(audit)))
//	mux.Handle("order:allocate", lock(asynq.HandlerFunc(allocate)))
//
// Package worker sets up a whole server from the environment, with typed handlers.
//
// # Packages
//
//   - [github.com/railtoken/railtoken/attach]: locks for an existing asynq server; producers
//   - [github.com/railtoken/railtoken/items]: tasks of many items, each under its own lock
//   - [github.com/railtoken/railtoken/worker]: servers, locks and clients from one Config or the environment
//   - [github.com/railtoken/railtoken/middleware]: the asynq middleware: keys, strategies for conflicts, errors, events
//   - [github.com/railtoken/railtoken/delayqueue]: the waiting tasks: list, reorder, drop, replay
//   - [github.com/railtoken/railtoken/inspect]: what holds a key, which tasks wait for it, what the workers are doing
//   - [github.com/railtoken/railtoken/inspect/admin]: an admin page of keys, holders and waiting tasks
//   - [github.com/railtoken/railtoken/inspect/explain]: why a task does not run
//   - [github.com/railtoken/railtoken/fence]: how databases, services and object stores refuse a late writer
//   - [github.com/railtoken/railtoken/locking]: leases with fencing tokens, on one Redis or several (Redlock); also
//     without tasks
//   - [github.com/railtoken/railtoken/locking/backend]: the interfaces that a new kind of Locker implements
//   - [github.com/railtoken/railtoken/locking/lockingtest]: the tests that every Locker must pass
//   - [github.com/railtoken/railtoken/worker/embeddedredis]: a Redis inside the process, for trying out the library
//
// Each of these is a separate module, because of its dependencies:
//
//   - github.com/railtoken/railtoken/pglock: locks in PostgreSQL, which commit together with what they protect
//   - github.com/railtoken/railtoken/etcdlock: locks on etcd
//   - github.com/railtoken/railtoken/metrics/prometheus: metrics for Prometheus, with alerts and a dashboard
//   - github.com/railtoken/railtoken/metrics/otel: metrics and traces for OpenTelemetry
//   - github.com/railtoken/railtoken/cmd/railtoken: the command that explains waits, diagnoses problems and frees keys
//
// The repository contains the design, the failure modes and a guide to operations in docs/, and runnable programs in
// examples/.
//
// [asynq]: https://github.com/hibiken/asynq
package railtoken
