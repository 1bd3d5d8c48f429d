package dbtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/testing/process"
)

// MariaDB is a MariaDB server. Its methods must be called from the goroutine of the test.
type MariaDB struct {
	dir  string
	user *process.User
	port int
	proc *process.Process
}

// startMariaDB runs a server, which ends with the test process at the latest.
func startMariaDB(tb testing.TB) (*MariaDB, error) {
	u, err := unprivileged()
	if err != nil {
		return nil, err
	}
	m := &MariaDB{user: u}
	if m.dir, err = newFolder("", u); err != nil {
		return nil, err
	}
	if out, err := m.exec(tb.Context(), "mariadb-install-db", m.options("--auth-root-authentication-method=normal", "--skip-test-db")...); err != nil {
		return nil, errors.Join(fmt.Errorf("dbtest: mariadb-install-db: %w\n%s", err, out), os.RemoveAll(m.dir))
	}
	if m.port, err = process.FreePort(tb.Context()); err == nil {
		err = m.run(tb.Context())
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(m.dir))
	}
	return m, nil
}

// options returns the options of the server's programs. A server that starts deletes the temporary tables of all servers
// with the same folder for them.
func (m *MariaDB) options(more ...string) []string {
	return slices.Concat([]string{
		"--no-defaults", "--datadir=" + filepath.Join(m.dir, "data"), "--tmpdir=" + m.dir,
		"--innodb-log-file-size=16M", "--innodb-buffer-pool-size=32M",
	}, more)
}

func (m *MariaDB) log() string { return filepath.Join(m.dir, "mariadb.log") }

// run starts the process and returns when it answers. After an error no process is left.
func (m *MariaDB) run(ctx context.Context) error {
	path, err := find("mariadbd")
	if err != nil {
		return err
	}
	logStart := process.LogSize(m.log())
	proc, err := process.Start(process.Command{
		Path: path, Dir: m.dir, Log: m.log(), User: m.user,
		Args: m.options("--bind-address="+process.Loopback, "--port="+strconv.Itoa(m.port), "--socket="+filepath.Join(m.dir, "s"),
			"--pid-file="+filepath.Join(m.dir, "pid"), "--skip-name-resolve", "--skip-log-bin", "--max-connections=200",
			"--innodb-flush-log-at-trx-commit=0", "--debug-no-sync"), // the data is not worth waiting for
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := process.Poll(ctx, proc.Exited(), func() error { return m.greets(ctx) }); err != nil {
		proc.Kill()
		return fmt.Errorf("dbtest: MariaDB did not start: %w; its log ends:\n%s", err, process.LogTail(m.log(), logStart))
	}
	m.proc = proc
	return nil
}

// greets returns nil when the server greets a client.
func (m *MariaDB) greets(ctx context.Context) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(process.Loopback, strconv.Itoa(m.port)))
	if err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		return errors.Join(err, conn.Close())
	}
	_, err = conn.Read(make([]byte, 1))
	return errors.Join(err, conn.Close())
}

// stop ends the server and deletes its data.
func (m *MariaDB) stop() {
	stop(m.proc)
	_ = os.RemoveAll(m.dir)
}

// Source returns the data source name of a database for the driver "mysql", without parameters.
func (m *MariaDB) Source(database string) string {
	return fmt.Sprintf("root@tcp(%s:%d)/%s", process.Loopback, m.port, database)
}

// Database creates an empty database for the test and returns its name. It is dropped at the end of the test.
func (m *MariaDB) Database(tb testing.TB) string {
	tb.Helper()
	name := fmt.Sprintf("test_%d_%d", os.Getpid(), sequence.Add(1))
	m.Exec(tb, "", "CREATE DATABASE "+name)
	tb.Cleanup(func() { _, _ = m.sql(context.Background(), "", "DROP DATABASE IF EXISTS "+name) })
	return name
}

// Exec runs SQL by the command-line client and returns its output, without the names of columns.
func (m *MariaDB) Exec(tb testing.TB, database, sql string) string {
	tb.Helper()
	out, err := m.sql(tb.Context(), database, sql)
	if err != nil {
		tb.Fatalf("%v:\n%s", err, out)
	}
	return out
}

func (m *MariaDB) sql(ctx context.Context, database, sql string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	return m.exec(ctx, "mariadb", "--no-defaults", "--host="+process.Loopback, "--port="+strconv.Itoa(m.port), "--user=root",
		"--batch", "--skip-column-names", "--execute="+sql, database)
}

// exec runs one of the server's programs to its end.
func (m *MariaDB) exec(ctx context.Context, name string, args ...string) (output string, err error) {
	path, err := find(name)
	if err != nil {
		return "", err
	}
	return runToEnd(ctx, process.Command{Path: path, Args: args, Dir: m.dir, User: m.user})
}
