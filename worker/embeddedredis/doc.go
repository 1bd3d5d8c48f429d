// Package embeddedredis runs a Redis inside the process, for trying out railtoken without installing one.
//
// It is [miniredis] on a free loopback port, with keys that expire in real time. Any Redis client can connect to it, so
// the locks, the delay queue and asynq itself work with it as they do with Redis.
//
// It is not for production. It lives in one process and ends with it, stores nothing on disk, evicts nothing when
// memory runs short, and has no replicas, password or encryption. It executes commands one at a time, at a fraction of
// the speed of Redis. Before each command it checks all keys for expiry, so it slows down with every key: it suits a
// few hundred tasks at a time, not ten thousand. A lock in it excludes only programs that can reach this process.
// railtoken never starts one by itself.
//
// It does not answer INFO server. So a Redlock on several of these servers needs locking.GuardOff: with any other guard
// none of them ever votes, and tasks wait. For the same reason inspect.Inspector.Nodes reports an error for each of
// them, and the metric railtoken_node_votes is 0.
//
// [miniredis]: https://github.com/alicebob/miniredis
package embeddedredis
