// Package worker runs asynq workers whose handlers hold the locks of their business keys while they run.
//
//	cfg, err := worker.FromEnv() // RAILTOKEN_REDIS_ADDR and others
//	...
//	w, err := worker.New(cfg)
//	...
//	err = worker.Handle(w, "order:audit", worker.Handler[Order]{
//		Keys: func(o Order) []string { return []string{middleware.Key("order", o.ID)} },
//		Run:  func(ctx context.Context, o Order) error { return audit(ctx, o) },
//	})
//	...
//	err = w.Run(ctx)
//
// A producer enqueues tasks with a [Client]:
//
//	client, err := worker.NewClient(cfg.Redis)
//	...
//	_, err = client.Enqueue(ctx, "order:audit", Order{ID: "1042"})
//
// A handler that enqueues further tasks also uses a Client. All handlers of a process share one Client, which is made
// before the Worker runs and closed after Run has returned.
//
// [New] builds everything from a [Config], which [FromEnv] reads from the environment: asynq's servers, the locks, the
// delay queue, and the parts of asynq's Config that concern conflicts. [Handle] registers a typed handler together with
// its keys, strategy and TTL, and [HandleItems] one whose tasks are divided into items. [Worker.Run] runs until its
// context ends and then shuts down gracefully. [NewClient] is for producers. Use [Client.EnqueueInOrder] for tasks
// whose handlers run in order ([middleware.Requeue].Order).
//
// Tasks are on one Redis: a standalone server, a master watched by Sentinel, or a Redis Cluster. The locks are on the
// same Redis, on another one, or on several independent servers.
//
// [Worker.Start] refuses a Redis that may evict keys, is too old or is a replica, and a Redis user that lacks ACL
// rules. The error contains the command that adds all missing rules. Start only warns about what makes the worker
// slower. A user needs the rules ~asynq:* ~railtoken:* &asynq:* &railtoken:* +@all -@dangerous +info, and +cluster on a
// Cluster. [Redis].Namespace lets applications share a Redis, each with rules for its own names.
//
// The library never starts a Redis by itself and refuses an empty address. Package embeddedredis provides one for
// trying out the library.
package worker
