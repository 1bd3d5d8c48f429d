// Package locking gives one holder at a time the right to work on a key.
//
// A [Locker] makes one attempt for one or more keys and returns at once: a [Lease], or a [HeldError] that names the
// holder, since when it has the key, and how long its lease still lasts. [Do] and [Wait] wait for keys.
//
// A lease is a context with a cause: [Lease.Context] is cancelled, with an error that matches [ErrLost], as soon as the
// lease can no longer be trusted. Until it is released, a lease renews itself, up to MaxHold.
//
// # Choosing a Locker
//
// [NewSingle] keeps locks on one Redis, [NewRedlock] on a majority of independent servers. A [Gate] in front of either
// queues up the callers of one process in memory, and hands a lease off from one to the next without asking the
// servers. [New] makes a Locker of a backend of your own: see package backend.
//
// # What a lock on Redis cannot promise
//
// A lock with a time limit excludes others only while its holder notices the limit. A process that is stopped for
// longer than the TTL (a paused virtual machine, a long stop by the kernel) may go on writing after another holder has
// started: its context is cancelled as soon as it runs again, which can be too late. The fencing token of [Lease.Fence]
// closes the gap. It is larger for every later lease of the same key, so a database that keeps the largest token it has
// seen, and refuses smaller ones, refuses the late writer. See Martin Kleppmann, "How to do distributed locking", 2016.
//
// A single Redis that loses its data loses its locks: after a restart without persistence, or a failover to a replica
// that had not received them. Where that matters, let the database check the token.
//
// The TTL of a key runs by its server's wall clock. When that clock is set forward, keys expire early, and a second
// holder may start while the first one still trusts its lease; with a Redlock only when the clocks of a majority are
// set. Slew the clocks of servers instead of stepping them, as chrony and ntpd do after their start.
//
// # Unanswered calls
//
// An unanswered call may have been executed, or may be executed later. So each call is sent once, whatever the client's
// MaxRetries, and a hook of the client must not repeat it. An attempt with an unanswered call is given back: its lock
// is deleted, or its owner is marked as abandoned in the fence counter, so that the server refuses the call if it
// arrives within two minutes. Giving back is repeated in the background, at least twice a second, until the server has
// answered, for ten minutes at most. So is a release, until the lock has expired. Close waits up to 5 s for what is
// under way; only a process that ends before that leaves a key locked for its TTL.
//
// A lease is lost by the local clock, by the answer to a renewal, or by the answer to the only release that may have
// been executed. After an unanswered release, another holder is what its success looks like, and it counts as one.
//
// # Several servers
//
// [NewRedlock] needs no consensus for its tokens: each server counts the grants of a key, and a lease's token is a
// number that a majority of the servers holds for it. Two committed leases share a server, on which the second grant
// came after the first and raised the counter, so tokens are unique and grow, without any assumption about clocks.
// When a server loses its data, two things keep that true. The server does not vote before the longest TTL has passed
// ([GuardConnect]). And proposals begin at the clock in microseconds, so the clocks of the clients must agree within
// half of the longest TTL. The directory model has a proof by exhaustion for small cases.
//
// A renewal retakes the lock on servers that have lost it, once a majority has renewed. So a lease outlives a restart
// of all servers in turn, if each restart waits until the server before votes again (MaxTTL) and leases are renewed.
//
// # Redis keys
//
// A business key may hold any bytes. The lock of key K is the plain string railtoken:lock:{K}, so other programs that
// take locks with SET NX PX exclude this package and are excluded by it. Its fence counter and the subscription to its
// release lie in the same cluster slot: railtoken:lock:{K}:fence and railtoken:lock:{K}:notify. A release is published
// in the channel that has the name of the lock.
//
// A Redis user with ACL rules needs ~railtoken:* &railtoken:* +@all -@dangerous +info, on a Cluster +cluster as well,
// and the names that a RedisKey option makes. Without the channels (&) everything works, but callers that wait poll, up
// to every half a second.
package locking
