// Package etcdlock keeps locks on etcd: a locking.Locker for work that must stay correct when a server fails.
//
// etcd replicates every lock to a majority of its members before it answers, so no failover loses one. Use it where a
// lock on Redis is not enough, while the tasks stay on Redis:
//
//	locks, err := etcdlock.New(client, etcdlock.Options{})
//	...
//	rt, err := attach.New(rdb, cfg, attach.Options{Locker: locks})
//
// # What is stored
//
// The lock of key K is the etcd key railtoken/lock/K, whose value names the holder in JSON. An etcd lease deletes it if
// its holder crashes. Several keys are taken in one transaction: all of them or none. A lease for more than 128 keys
// needs a higher --max-txn-ops, and a lower one than etcd's default of 128 is too low. The key railtoken/notify/K tells a
// holder that callers wait for its release.
//
// An etcd lease lasts for a whole number of seconds, and for a second longer than the TTL of its locks, so that the
// next lock can use it without a renewal: after a crash a key becomes free up to two seconds later than its TTL says.
// It also lasts for at least 1.5 times etcd's election timeout, rounded up. With the defaults of etcd every TTL is
// possible; otherwise Acquire refuses one that is too short.
//
// # Fencing tokens
//
// The token of a lease is 256 times the revision of the transaction that took its keys, plus the number of times that a
// locking.Gate has handed it off. etcd's revision grows with each write, so tokens are unique and grow, whatever the
// clocks of clients and servers say. They stay below 2^53 for 35 trillion writes. Restore a backup with etcdutl
// snapshot restore --bump-revision, so that tokens do not start again from the revision of the backup.
//
// # What a lock with a time limit cannot promise
//
// A lease is trusted for a little less than its TTL, counted from before the last renewal was sent, by the faster of
// two local clocks. But even with etcd, a process that is stopped after it has checked the lease, and continues after
// the TTL, writes late: let the resource check the fencing token of locking.Lease.FenceOf. This also protects against
// versions of etcd before 3.4.31 or 3.5.13, in which a leader that was stopped or stuck for longer than a TTL may end
// leases that its successor has renewed.
//
// # Cost
//
// An acquisition and a release are one write each, which a majority of the members has on disk before etcd answers:
// that is the floor, and also what a Mutex from etcd's concurrency package costs. Where callers of one process want the
// same key, a locking.Gate hands the lease off from one to the next without a write in etcd. A renewal writes nothing.
// Renewals that are due at about the same time share a stream of keep-alives and a transaction that reads.
//
// etcd keeps every write until it is compacted, and does not compact itself by default: 34 000 locks fill 8 MiB, and 9
// million its default quota of 2 GiB, after which it refuses everything. Start it with --auto-compaction-mode=periodic and
// --auto-compaction-retention=5m. Locks need no history.
//
// # Calls without an answer
//
// A transaction that takes keys is sent once. If its answer is lost, the call that revokes its etcd lease is repeated in
// the background until etcd confirms that the lease is gone. Then the transaction has no effect, even if it is applied
// later, because it names a lease that no longer exists. Releases without an answer are repeated in batches. Both begin
// with the oldest, so after an outage thousands of keys become free within two seconds. A call gets 2 s, or less if its context ends. While etcd has no majority,
// Acquire fails with an error that matches locking.ErrUnavailable, and leases are lost when their TTL ends.
//
// # Looking from outside
//
// Package inspect, the railtoken command and the admin page do not read etcd. They show the holder of a key if it is a
// task, as its worker reports it every 5 s, and cannot depose it. The keys below railtoken/lock/ list all locks, with
// the labels of their holders. A holder that hangs loses its key once its process has been stopped and its TTL has
// passed. Deleting the etcd key frees it at once; the holder is told at its next renewal.
//
// # The client
//
// Endpoints, TLS and authentication are those of the clientv3.Client. List all members, and set its DialKeepAliveTime
// and DialKeepAliveTimeout (to 10 s, which is gRPC's minimum, and 3 s), so that the client leaves a member that hangs.
// A user of etcd needs readwrite permission on the prefix railtoken/.
package etcdlock
