// Package worker runs asynq workers whose handlers hold the lock of their business keys while they run.
//
// [New] builds everything from a [Config], which [FromEnv] reads from the environment: asynq's servers, the locks, the
// delay queue, and the part of asynq's Config that concerns conflicts. [Handle] registers a typed handler, with its
// keys, strategy and TTL where the handler is. [Worker.Run] works until its context ends and then shuts down in order.
// [NewClient] is for producers; [Client.EnqueueInOrder] is for tasks whose handlers run in order
// ([middleware.Requeue].Order).
//
// Tasks are on one Redis: standalone, a master watched by Sentinel, or a Redis Cluster. The locks are on the same, on
// another, or on several independent servers.
//
// [Worker.Start] refuses a Redis that may evict keys, is too old or a replica, and a Redis user that lacks ACL rules:
// the error has the command that adds all of them. It warns of what only makes the worker slower. A user needs ~asynq:*
// ~railtoken:* &asynq:* &railtoken:* +@all -@dangerous +info, and +cluster on a Cluster.
//
// The library never starts a Redis of its own and refuses an empty address. Package embeddedredis has one for trying it out.
package worker
