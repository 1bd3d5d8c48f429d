// Package embeddedredis gives a program a Redis inside its own process, so that railtoken can be tried out without installing one.
//
// It is [miniredis] on a free loopback port, with the expiry of keys driven by the real clock. Any Redis client can connect to
// it, so the lock, the delay queue and asynq itself run against it as they do against a Redis.
//
// It is not for production: it lives in one process and ends with it, keeps nothing on disk, evicts nothing when memory runs
// short, has no replicas, no password and no encryption, and executes commands one at a time at a fraction of the speed of
// Redis. Before each command it looks at the expiry of all keys, so it slows down with every key: it suits some hundred tasks at
// a time, not ten thousand. A lock in it excludes only programs that can reach this process. railtoken never starts one unless
// told to.
//
// [miniredis]: https://github.com/alicebob/miniredis
package embeddedredis
