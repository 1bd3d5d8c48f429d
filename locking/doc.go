// Package locking gives one holder at a time the right to work on a key.
//
// A [Locker] makes one attempt for one or more keys and answers at once, with a [Lease] or with a [HeldError] that says who
// holds which key, since when, and for how long its lease still runs. Waiting is the caller's business.
//
// A lease is a context with a cause. [Lease.Context] is cancelled, with an error that matches [ErrLost], at the moment the
// lease can no longer be trusted. Until it is released a lease renews itself after a quarter to a third of its TTL, up to MaxHold.
//
// # What a lock on Redis cannot promise
//
// A lock with a time limit excludes others only as long as its holder notices the limit. A process that is stopped for
// longer than the TTL (a paused virtual machine, a long stop by the kernel) can go on writing after another holder has
// started: its context is cancelled as soon as it runs again, which may be too late. The fencing token of [Lease.Fence]
// closes the gap: it is larger for every later lease of the same key, so a database that keeps the largest token it has
// seen, and refuses smaller ones, refuses the late writer. See Martin Kleppmann, "How to do distributed locking", 2016.
//
// A single Redis node that loses its data loses its locks: after a restart without persistence, or a failover to a
// replica that had not seen them yet. Where that matters, let the database check the token.
//
// The TTL of a key runs by its server's wall clock. When that is set forward, keys end too early, and a second holder may start while the
// first one still trusts its lease: on several servers only when the clocks of a majority are set. Slew the clocks of servers
// (chrony and ntpd do so after their start) instead of stepping them, and let the database check the token.
//
// # Calls without an answer
//
// A call that has no answer may have been executed, or may be executed later. So each call is sent once, whatever MaxRetries of a client
// says, and a hook of the client must not send it again. An attempt whose call has no answer is taken back: its lock is deleted, or its
// owner is marked as given up in the fence counter, so that the server refuses the call should it arrive within two minutes. Until the
// server has answered that, for ten minutes at most, it is sent again in the background, at least twice a second. So is a release, until the
// lock has run out. Only a process that ends before leaves a key locked for a TTL: Close waits for what is under way, for 5 s at most.
//
// A lease is lost by the local clock, by the answer to a renewal, or by that to the only release that may have been executed. When a release was
// sent before, another holder is what its success looks like, and it counts as one.
//
// # Several servers
//
// [NewRedlock] takes each lock on a majority of independent servers. Its tokens need no consensus: each server counts the grants of a key,
// and a lease's token is a number that a majority of the servers holds for it (model/ has a proof by exhaustion for small cases). Two leases that were both committed share a
// server, on which the second grant came after the first and raised the counter, so tokens are unique and grow, with no assumption on clocks.
// When a server loses its data, what keeps that true is: it does not vote before the longest TTL has passed ([GuardConnect]), and proposals
// begin at the clock in microseconds, so the clocks of the clients must agree within half of the longest TTL.
//
// A renewal takes the lock again on servers that have lost it, once a majority has renewed without them: a lease outlives a restart of
// all servers in turn, when each restart waits until the server before votes again (MaxTTL) and the leases have been renewed there.
//
// # Waiting
//
// [Do] and [Wait] wait for keys. With a [Gate] in front of a Locker the callers of one process stand in line in memory, and a lease is
// handed off from one to the next without asking the servers.
//
// # Keys
//
// A business key may hold any bytes. On Redis, the lock of key K is the plain string railtoken:lock:{K}, so that other
// programs that take locks with SET NX PX exclude us and are excluded by us. Its fence counter and the mark of those
// who wait lie in the same cluster slot: railtoken:lock:{K}:fence and railtoken:lock:{K}:interest. A release is announced in the channel
// that has the name of the lock.
//
// A Redis user with ACL rules needs ~railtoken:* &railtoken:* +@all -@dangerous +info, on a Cluster +cluster as well, and the names that a RedisKey of
// its own makes. Without the channels (&) everything works, but callers that wait look for themselves, every half a second at last.
package locking
