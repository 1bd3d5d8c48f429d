// Package restartguard keeps a Redis server that may have forgotten locks from voting in a Redlock.
//
// A server that was restarted, replaced, promoted, or told to evict keys grants a key that another client still holds.
// Redlock counts such a grant as a vote, so two clients can reach a majority. The remedy is the delayed restart: a
// server has no vote until every lease that it may have forgotten has expired, which takes the longest TTL in use
// (docs/design.md, 3.6).
//
// A [Guard] guards the nodes of one Redlock. [Node.Protect] puts it into the options of a go-redis client. There it
// asks the server for its identity on every new connection, and closes the connection when the server may not vote. A
// restart breaks connections, so every restart is noticed, at no cost per lock. While a server is refused it is not
// dialled.
//
// # Limits
//
// A proxy that ends the client's connections itself hides a restart behind it. With [Strict] the lock scripts compare
// the server's identity on every call.
//
// A master that is made a replica takes over the data of its new master, keeps its connections, and may be made a
// master again (REPLICAOF). A connection that was vetted before goes on, unless it happens to write meanwhile. [Strict]
// notices.
//
// A process that takes the place of another one is quarantined by this process's own monotonic clock. But the age of a
// process on a node that is seen for the first time is what the server reports, by its wall clock. A clock that is set
// forward after the server started, and before this process saw it, makes the server look older than it is. A start
// before 2021, which a clock without a battery produces, is not believed. Start a server after its clock has been set.
//
// A promoted replica shows a second replication id, but Redis forgets it when no replica was connected for
// repl-backlog-ttl (an hour by default). With a repl-backlog-ttl below the longest TTL a promotion can go unnoticed.
//
// An old promotion is quarantined as well, because no server reports its time: a new process waits for the longest TTL
// before it trusts a server that was promoted once.
package restartguard
