package dbtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/testing/process"
)

// PgBouncer is a connection pooler in front of a [Postgres]. In its transaction mode, each transaction of a client may
// run in another session of the server.
type PgBouncer struct {
	port int
}

// StartPgBouncer runs a PgBouncer in transaction mode and returns when it answers. It has two sessions for each
// database, and gives the one that was idle longest to the next transaction. Settings such as "default_pool_size=5" are
// added to its configuration. It is stopped at the end of the test.
func StartPgBouncer(tb testing.TB, server *Postgres, settings ...string) *PgBouncer {
	tb.Helper()
	bin := program(tb, "pgbouncer")
	u, err := unprivileged()
	if err != nil {
		tb.Fatal(err)
	}
	dir, err := newFolder("", u)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	log := filepath.Join(dir, "pgbouncer.log")
	port, err := process.FreePort(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	b := &PgBouncer{port: port}
	conf, err := b.configure(dir, u, server, settings)
	if err != nil {
		tb.Fatal(err)
	}
	proc, err := process.Start(process.Command{Path: bin, Args: []string{conf}, Dir: dir, Log: log, User: u})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { stop(proc) })
	ctx, cancel := context.WithTimeout(tb.Context(), readyTimeout)
	defer cancel()
	if err := process.Poll(ctx, proc.Exited(), func() error { return b.answers(ctx) }); err != nil {
		tb.Fatalf("dbtest: PgBouncer did not start: %v; its log ends:\n%s", err, process.LogTail(log, 0))
	}
	return b
}

// configure writes the configuration and returns its path.
func (b *PgBouncer) configure(dir string, u *process.User, server *Postgres, settings []string) (string, error) {
	users := filepath.Join(dir, "users.txt")
	lines := append([]string{
		"[databases]",
		fmt.Sprintf("* = host=%s port=%d", process.Loopback, server.Port()),
		"[pgbouncer]",
		"listen_addr = " + process.Loopback,
		fmt.Sprintf("listen_port = %d", b.port),
		"unix_socket_dir =",
		"auth_type = trust",
		"auth_file = " + users,
		"admin_users = " + superuser,
		"pool_mode = transaction",
		"server_round_robin = 1",
		"default_pool_size = 2",
		"max_client_conn = 500",
		"ignore_startup_parameters = extra_float_digits",
	}, settings...)
	conf := filepath.Join(dir, "pgbouncer.ini")
	for name, text := range map[string]string{
		users: fmt.Sprintf("%q \"\"\n", superuser),
		conf:  strings.Join(lines, "\n") + "\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			return "", fmt.Errorf("dbtest: %w", err)
		}
		if u != nil {
			if err := os.Chown(name, u.UID, u.GID); err != nil {
				return "", fmt.Errorf("dbtest: %w", err)
			}
		}
	}
	return conf, nil
}

// answers dials.
func (b *PgBouncer) answers(ctx context.Context) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(process.Loopback, strconv.Itoa(b.port)))
	if err != nil {
		return err
	}
	return conn.Close()
}

// URL returns the connection string of a database of the server behind PgBouncer.
func (b *PgBouncer) URL(database string) string { return url(b.port, database) }

// stop ends a process in order, or kills it when that takes too long.
func stop(proc *process.Process) {
	if err := proc.Interrupt(); errors.Is(err, os.ErrProcessDone) {
		return
	}
	select {
	case <-proc.Exited():
	case <-time.After(stopTimeout):
		proc.Kill()
	}
}
