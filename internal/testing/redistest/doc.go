// Package redistest gives a test its own Redis: a real server process, a small cluster of them, or a fake one that
// lives inside a synctest bubble.
//
// Each shows something different:
//
//   - [Start] runs a redis-server on its own loopback port. It can be killed, paused and restarted, so it shows what a
//     crash, a slow node or a script does.
//   - [StartCluster] joins several of them into a Redis Cluster, for everything that depends on hash slots.
//     [Cluster.MoveSlot] moves a slot at once, [Cluster.BeginMove] as slowly as the test says.
//   - [StartSentinel] gives a server a replica and sentinels, so it shows what a failover does.
//   - [NewProxy] stands between clients and a server, so it shows what a late request or a lost reply does.
//   - [Virtual] serves miniredis over pipes in memory, on the virtual clock of a [testing/synctest] bubble, so it shows
//     what happens after an hour without waiting for one.
//
// A test that needs redis-server is skipped where none is installed, and fails when REDISTEST_REQUIRE is set. One test
// of this package fails if redis-server is not installed, and names every test that was left out, so that a plain
// "go test ./..." cannot leave any out silently. REDISTEST_SERVER names another program to start in its place, which takes
// the same arguments: another version of Redis, or a Valkey.
package redistest
