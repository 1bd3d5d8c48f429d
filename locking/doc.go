// Package locking gives one holder at a time the right to work on a key.
//
//	locker, err := locking.NewSingle(client, locking.SingleOptions{}) // client is a go-redis client
//	...
//	defer locker.Close()
//
//	err = locking.Do(ctx, locker, []string{"order:1042"}, locking.Options{},
//		func(ctx context.Context, lease *locking.Lease) error {
//			return audit(ctx) // ctx ends when the lease is lost
//		})
//
// A [Locker] makes one attempt for one or more keys and returns at once: with a [Lease], or with a [HeldError] that
// names the key and its holder, and says when the key was taken and how much of the lease is left. [Do] and [Wait] wait
// for keys.
//
// A lease has a context: [Lease.Context] is cancelled, with a cause that matches [ErrLost], as soon as the lease can no
// longer be trusted. A lease renews itself until it is released, up to MaxHold.
//
// # Choosing a Locker
//
// [NewSingle] keeps locks on one Redis, [NewRedlock] on a majority of independent servers. A [Gate] in front of either
// queues the callers of one process in memory, and hands a lease off from one to the next without asking the servers.
// [New] makes a Locker from your own implementation of package backend.
//
// # What a lock on Redis cannot promise
//
// A lock with a time limit excludes others only if its holder notices when the limit has passed. A process that is
// stopped for longer than the TTL, for example in a paused virtual machine, may continue to write after another holder
// has started: its context is cancelled as soon as it runs again, which can be too late. The fencing token of a
// key ([Lease.FenceOf]) closes this gap. Tokens grow with each lease of a key, so a database that remembers the largest token,
// and refuses smaller ones, refuses the late writer. See Martin Kleppmann, "How to do distributed locking", 2016.
//
// A single Redis that loses its data loses its locks: after a restart without persistence, or after a failover to a
// replica that had not received them. Where that matters, let the database check the token.
//
// The TTL of a key follows its server's wall clock. If that clock is set forward, keys expire early, and a second
// holder may start while the first one still trusts its lease. A Redlock does not prevent this: if one of three servers
// was away when a lease began, one clock that is set forward is enough until about a second after its return, when the
// lease is on it, too. Only the fencing token refuses the late writer then. Slew the clocks of servers, as chrony and
// ntpd do after their start, instead of stepping them.
//
// # Unanswered calls
//
// A server may have executed a call that it has not answered, or may execute it later. Therefore each call is sent
// once, whatever the client's MaxRetries, and hooks of the client must not repeat it. An attempt with an unanswered
// call is undone: its lock is deleted, or its owner is marked as abandoned in the fence counter, so that the server
// refuses the call if it arrives within two minutes. This is repeated in the background, at least twice a second, until
// the server has answered, or for ten minutes. A release is repeated in the same way until the lock has expired. Close
// waits for both, up to 5 s. Only a process that ends before that leaves a key locked for its TTL.
//
// A lease is lost when the local clock, the answer to a renewal, or the answer to its only release says so. If an
// earlier release had no answer, a key with another holder counts as released: that is what success looks like.
//
// # Several servers
//
// [NewRedlock] needs no consensus for its tokens. Each server counts the grants of a key, and the token of a lease is a
// number that a majority of the servers holds for it. Any two majorities share a server, on which the second grant came
// after the first and raised the counter. So tokens are unique and grow, without any assumption about clocks.
//
// If a server loses its data, two rules preserve this. The server does not vote until a client has watched it for the
// longest TTL (see [GuardMode]). And a proposed token is at least the clock's time in microseconds, so the clocks of the clients must
// agree within half of the longest TTL. The source repository has a formal model of this protocol, checked exhaustively
// for small cases: https://github.com/railtoken/railtoken/tree/main/model.
//
// Once a majority has renewed the lock, a renewal retakes it on servers that have lost it. So a lease survives when all
// servers are restarted in turn, provided that it is renewed, and that no server is restarted before the previous one
// votes again (MaxTTL).
//
// # Redis keys
//
// A business key may contain any bytes. The lock of key K is the plain string railtoken:lock:{K}, so programs that lock
// with SET NX PX exclude this package and are excluded by it. Its fence counter, railtoken:lock:{K}:fence, and the
// subscription to its release, railtoken:lock:{K}:notify, are in the same cluster slot. A release is published on the
// channel with the name of the lock.
//
// [SingleOptions].Namespace and [RedlockOptions].Namespace put a prefix before all of these names.
//
// A Redis user with ACL rules needs ~railtoken:* &railtoken:* +@all -@dangerous +info, on a Cluster also +cluster, and
// access to the names that a RedisKey option makes. Without the channels (&), waiting callers poll at least every half
// second; everything else works.
package locking
