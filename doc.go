// Package railtoken is the root of a framework of locks per business key for [asynq] workers: one business key, one token, one
// task at a time. It has no code of its own. Two tasks that work on the same order never run at the same time, whatever their
// types, queues and processes, and a task that has to wait uses up neither a worker slot nor a retry.
//
// # Start
//
// Package attach adds the locks to an asynq server that you have:
//
//	locks, err := attach.New(rdb, cfg, attach.Options{}) // your go-redis client and your asynq.Config
//	...
//	lock := locks.Lock(middleware.PayloadKey(func(o order) string { return middleware.Key("order", o.ID) }))
//	srv := asynq.NewServerFromRedisClient(locks.Client(), locks.Config())
//	mux := asynq.NewServeMux()
//	mux.Handle("order:audit", lock(asynq.HandlerFunc(audit)))
//	mux.Handle("order:allocate", lock(asynq.HandlerFunc(allocate)))
//
// Package worker sets a whole server up from the environment, with typed handlers.
//
// # Packages
//
//   - [github.com/railtoken/railtoken/attach]: locks for an asynq server that exists
//   - [github.com/railtoken/railtoken/worker]: servers, locks and clients from one Config or the environment
//   - [github.com/railtoken/railtoken/middleware]: the asynq middleware: keys, strategies for conflicts, errors, events
//   - [github.com/railtoken/railtoken/delayqueue]: tasks that wait for a key: who waits, reorder, drop, replay
//   - [github.com/railtoken/railtoken/locking]: leases with fencing tokens, on one Redis or several (Redlock); usable without tasks
//   - [github.com/railtoken/railtoken/worker/embeddedredis]: a Redis inside the process, for trying it out
//
// The repository has the design, the failure modes and a guide to operations in docs/, and runnable programs in examples/.
//
// [asynq]: https://github.com/hibiken/asynq
package railtoken
