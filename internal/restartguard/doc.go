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
// No age that a server reports counts, because its clock may have been set since it started. A client watches a server
// for the longest TTL by its own monotonic clock, and then leaves a mark on the server with the server's identity
// ([MarkKey]). A client that finds the mark of the present process trusts it at once. So only the first client of a new
// process of a server waits, and a client that lives for less than the longest TTL must find a mark.
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
// A promoted replica shows a second replication id, but Redis forgets it if no replica was connected for
// repl-backlog-ttl (an hour by default). If that is shorter than the longest TTL, a client that has known the server
// before can miss a promotion.
//
// A virtual machine that is set back to a snapshot of its memory forgets locks and keeps its identity. Restart Redis
// after that.
package restartguard
