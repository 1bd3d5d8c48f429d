// Package guard keeps a Redis server that may have forgotten locks from voting in a Redlock.
//
// A server that was restarted, replaced, promoted or told to evict keys grants a key that another client still holds. Redlock
// counts such a grant as a vote, so that two clients can reach a majority. The remedy is the delayed restart: a server has no vote
// until every lease that it may have forgotten has run out, which takes the longest TTL in use (docs/design.md, 3.6).
//
// A [Guard] stands for the nodes of one Redlock. [Node.Protect] puts it into the options of a go-redis client, where it asks the
// server who it is on every new connection and gives the connection up when the answer is not good enough. A restart breaks
// connections, so every restart is seen, at no cost per lock. While a server is refused nobody dials it.
//
// # What it cannot see
//
// A proxy that ends the client's connections itself hides a restart behind it. For that there is [Strict], where the lock scripts
// compare the server's identity on every call.
//
// A master that is made a replica of another one takes over that one's data, keeps its connections, and may be made a master again
// (REPLICAOF). A connection that was vetted before goes on, unless it happens to write meanwhile. [Strict] sees it.
//
// A process that takes the place of another one is quarantined by this process's own monotonic clock. But the age of a process on a
// node that is seen for the first time is what the server says of itself, and all that a server says of time comes from its wall clock.
// A clock that is set forward after the server started, and before this process saw it, makes the server look older than it is. A start
// before 2021, which a clock without a battery produces, is not believed. The remedy is to start the server after its clock has been set.
//
// A promoted replica shows a second replication id, but Redis forgets it when no replica was connected for repl-backlog-ttl (an
// hour by default). With a repl-backlog-ttl below the longest TTL a promotion can go unnoticed.
//
// A promotion is also quarantined when it happened long ago, because no server says when it was: a new process waits for the
// longest TTL before it trusts a server that was promoted once.
package guard
