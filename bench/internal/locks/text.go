package locks

// The texts of the sections. They hold no figures of a run.
const (
	oneText = `Each caller acquires a key and releases it at once, one pair after the other, on keys that nobody else wants; the TTL is 30 s.
*raw connection* is what the two commands of the canonical pattern cost without any library, written by hand on a connection for each caller;
*floor* is the same pattern with the bare go-redis client. Neither has a fencing token, a renewal or a way to wait. *railtoken* has all
three, and *railtoken gate* stands behind the line of one process besides. The clients are as their documentation recommends: go-redis with
its defaults for all who use it; rueidislock with client-side caching and the option for Redis 7; etcd with one session for the process.
A ratio above 1 means that railtoken did more pairs in the same round. redis-server writes nothing to disk.`

	fiveText = `The same on five servers that are independent of each other, where a majority must agree. *redsync* is as it is by default; *failfast*
is its option not to wait for more servers than it takes. rueidislock is given a majority of three, one key on each server. etcd is one
cluster of five members. The servers have run for longer than the TTL before, as railtoken does not let a younger one vote.`

	contendedText = `64 callers take keys that others want too, hold them for 1 ms and come back at once. The *ideal* is the rate of callers who need no
lock, one for each key: one holder at a time on one key, 8 on 8 keys, measured in the same round; *of ideal* is the share of it.
*commands/acquisition* counts what clients send to all servers, without what scripts do there; etcd tells of no such thing. *longest wait ÷ mean* tells
how far the unluckiest caller was from the others; a wait that had no end in the slice counts too. railtoken stands behind its gate, redislock
waits by a linear backoff of 10 ms, which is shorter than in its examples, redsync as it does by default, rueidislock by the invalidation
of the key. Each caller of etcd has a session of its own, as mutexes of one session do not exclude each other.`

	outageText = `One caller on five servers of which one does not serve, against five healthy ones in the same rounds. *Dstop* stops another one in each
round by SIGSTOP: its connections stay open and nothing is answered. *Dkill* ends the first one for good. Of etcd always a follower is hit,
never the leader: an election would take longer than a slice. A pair that had not ended with its slice counts with the time that it had taken so
far. Read p50 together with the pairs/s: a caller that hangs after a few quick pairs has a low p50, and hardly any pairs.`

	farText = `Each server is behind a proxy on the loopback device that passes bytes on 1 ms after they came, in both directions, however many are under
way: a round trip takes 2 ms and a little more. The members of etcd are as far from each other as from the callers. The rows *pool 128* are
the same libraries with a pool of go-redis for 128 connections, in place of the usual ten for each processor; railtoken keeps the usual one.`

	etcdText = `etcd %s from the system's packages runs with its defaults, with its data %s. It is no like for like: its locks are safe by consensus, and cost that.`
)
