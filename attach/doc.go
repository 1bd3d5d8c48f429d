// Package attach adds locks to an asynq server that exists already: one task at a time for each business key, and tasks that wait without using up a retry.
//
// [New] takes the server's Redis client and asynq.Config and gives back both, as asynq must have them, and the middleware:
//
//	rt, err := attach.New(client, asynq.Config{Queues: queues}, attach.Options{})
//	...
//	srv := asynq.NewServerFromRedisClient(rt.Client(), rt.Config())
//	mux := asynq.NewServeMux()
//	mux.Handle("order:audit", rt.Lock(orderKey)(auditHandler))
//
// Nothing else changes: the mux, the handlers, producers, the Inspector and the scheduler stay as they are, and servers without locks may work on the same
// queues. What is forgotten is an error: at New, or of the first task, with the line to add.
//
// [Attached.Schedule] runs an asynq Scheduler in one of several replicas. Package worker does all of this from the environment, with typed handlers.
//
// # Other middlewares
//
// A task that waits ends its run with a middleware.ConflictError that asynq does not count as a failure. A middleware around the lock sees it: let a logger or
// an error tracker pass over what [Waits] reports. One that swallows the error does not lose the task: it waits all the same, and the log says so.
package attach
