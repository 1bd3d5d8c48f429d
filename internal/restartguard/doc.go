// Package restartguard keeps Redis servers that may have forgotten locks from voting in a Redlock.
//
// A server that was restarted, replaced or promoted, or that evicts keys, may grant a key that another client still
// holds. Redlock counts such a grant as a vote, so two clients can reach a majority. The remedy is a delayed restart: a
// server does not vote until every lease that it may have forgotten has expired, which takes the longest TTL in use
// (docs/design.md, 3.6).
//
// A [Guard] guards the nodes of one Redlock. [Node.Protect] adds it to the options of a go-redis client. The guard asks
// the server for its identity on every new connection, and closes the connection if the server may not vote. Because a
// restart breaks connections, every restart is noticed, at no cost per lock. A refused server is not dialled.
//
// # Limits
//
// A proxy that terminates the client's connections hides a restart behind it. With [Strict], the lock scripts compare
// the server's identity on every call.
//
// A master that is made a replica takes over the data of its new master but keeps its connections, and may be made a
// master again (REPLICAOF). A connection that was vetted before survives this, unless it happens to write in between.
// [Strict] notices this.
//
// When a server's process replaces another one, the client measures the quarantine by its own monotonic clock. But when
// a node is seen for the first time, the age of its process is what the server reports by its wall clock. If that clock
// has been set forward since the server started, the server looks older than it is. So set the clock before the server
// starts. The guard does not trust a start time before 2021, which a clock without a battery produces.
//
// A promoted replica shows a second replication id, but Redis forgets it if no replica was connected for
// repl-backlog-ttl (an hour by default). If that is shorter than the longest TTL, a promotion can go unnoticed.
//
// Servers do not report when they were promoted. So a new process quarantines every promoted server for the longest
// TTL, however old the promotion is.
package restartguard
