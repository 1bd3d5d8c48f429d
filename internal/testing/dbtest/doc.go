// Package dbtest gives a test its own database: in a PostgreSQL server that all tests of the package share, or on a
// server of its own that can be killed, paused and restarted, with or without PgBouncer in front of it; or in a shared
// MariaDB server.
//
// Servers listen on free ports of the loopback interface, keep their data in folders of their own, and end with the
// tests. They run as an unprivileged user if the tests run as root. A test that needs a server is skipped if the server
// is not installed, or fails if REDISTEST_REQUIRE is set. One test of this package fails if a server is missing, and
// names every test that was left out.
package dbtest
