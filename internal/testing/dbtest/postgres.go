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
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/testing/process"
)

const (
	readyTimeout = 30 * time.Second
	stopTimeout  = 10 * time.Second

	// superuser is the role that owns everything. It has no password.
	superuser = "postgres"
)

// Postgres is a PostgreSQL server. Its methods may be called from any goroutine, except that those with a [testing.TB]
// must be called from the goroutine of the test.
type Postgres struct {
	bin      string // the folder of its programs
	dir      string
	user     *process.User
	settings []string
	port     int

	mu   sync.Mutex
	proc *process.Process // nil when not running
}

// StartPostgres runs a server for one test alone, and returns when it answers. Settings such as "max_connections=20" are
// added to its command line; without "fsync=on" a crash of the machine, but not of the server, loses data. The server is
// stopped at the end of the test; a failed test shows the end of its log.
func StartPostgres(tb testing.TB, settings ...string) *Postgres {
	tb.Helper()
	program(tb, "postgres")
	p, err := RunPostgres(tb.Context(), "", settings...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		p.Stop()
		if tb.Failed() {
			tb.Logf("end of the log of %s:\n%s", p, process.LogTail(p.log(), 0))
		}
		if err := p.End(); err != nil {
			tb.Error(err)
		}
	})
	return p
}

// RunPostgres is [StartPostgres] for programs that are no tests. The server's folder is made in root, or among the
// temporary files if root is empty. It runs until [Postgres.End], or until the process that started it ends.
func RunPostgres(ctx context.Context, root string, settings ...string) (*Postgres, error) {
	postgres, err := find("postgres")
	if err != nil {
		return nil, err
	}
	u, err := unprivileged()
	if err != nil {
		return nil, err
	}
	p := &Postgres{bin: filepath.Dir(postgres), user: u, settings: settings}
	if p.dir, err = newFolder(root, u); err != nil {
		return nil, err
	}
	if err = p.init(ctx); err == nil {
		p.port, err = process.FreePort(ctx)
	}
	if err == nil {
		err = p.run()
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(p.dir))
	}
	return p, nil
}

// End stops the server and removes its folder.
func (p *Postgres) End() error {
	p.Stop()
	return os.RemoveAll(p.dir)
}

// init makes the data folder.
func (p *Postgres) init(ctx context.Context) error {
	out, err := p.exec(ctx, "initdb", "--pgdata", p.data(), "--username", superuser, "--auth", "trust", "--no-sync",
		"--encoding", "UTF8", "--locale", "C", "--wal-segsize", "1")
	if err != nil {
		return fmt.Errorf("dbtest: initdb: %w\n%s", err, out)
	}
	return nil
}

// exec runs one of the server's programs to its end.
func (p *Postgres) exec(ctx context.Context, name string, args ...string) (output string, err error) {
	return runToEnd(ctx, process.Command{
		Path: filepath.Join(p.bin, name), Args: args, Dir: p.dir, User: p.user, Env: []string{"PGCONNECT_TIMEOUT=10"},
	})
}

var sequence atomic.Int64

func (p *Postgres) data() string { return filepath.Join(p.dir, "data") }
func (p *Postgres) log() string  { return filepath.Join(p.dir, "postgres.log") }

// run starts the process and returns when it answers. After an error no process is left.
func (p *Postgres) run() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	args := []string{"-D", p.data()}
	for _, setting := range slices.Concat([]string{
		"listen_addresses=" + process.Loopback,
		"port=" + strconv.Itoa(p.port),
		"unix_socket_directories=",
		"fsync=off", // a crash of the process loses nothing all the same
		"max_connections=200",
		"shared_buffers=32MB",
		"max_wal_size=256MB",
		"log_line_prefix=%m [%p] ",
	}, p.settings) {
		args = append(args, "-c", setting)
	}
	logStart := process.LogSize(p.log())
	_ = os.Remove(p.pidFile())
	proc, err := process.Start(process.Command{
		Path: filepath.Join(p.bin, "postgres"), Args: args, Dir: p.dir, Log: p.log(), User: p.user,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	if err := process.Poll(ctx, proc.Exited(), func() error { return p.isReady(proc.PID()) }); err != nil {
		proc.Kill()
		return fmt.Errorf("dbtest: %s did not start: %w; its log ends:\n%s", p, err, process.LogTail(p.log(), logStart))
	}
	p.proc = proc
	return nil
}

func (p *Postgres) pidFile() string { return filepath.Join(p.data(), "postmaster.pid") }

// isReady returns nil when the process serves, as it tells in a file.
func (p *Postgres) isReady(pid int) error {
	text, err := os.ReadFile(p.pidFile())
	if err != nil {
		return err
	}
	lines := strings.Split(string(text), "\n")
	if lines[0] != strconv.Itoa(pid) || len(lines) < 8 || strings.TrimSpace(lines[7]) != "ready" {
		return errors.New("the server is not ready yet")
	}
	return nil
}

// String names the server in messages.
func (p *Postgres) String() string { return "PostgreSQL on " + p.addr() }

func (p *Postgres) addr() string { return net.JoinHostPort(process.Loopback, strconv.Itoa(p.port)) }

// Port returns the server's port on the loopback interface. It stays the same over Stop, Kill and Restart.
func (p *Postgres) Port() int { return p.port }

// PID returns the process ID of the running server, 0 when it does not run.
func (p *Postgres) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proc == nil {
		return 0
	}
	return p.proc.PID()
}

// Version returns the version of the server, such as "15.14".
func (p *Postgres) Version(ctx context.Context) (string, error) {
	out, err := p.psql(ctx, p.URL(superuser), "SHOW server_version")
	version, _, _ := strings.Cut(out, " ")
	return version, err
}

// URL returns the connection string of a database. It is a URL without parameters except sslmode.
func (p *Postgres) URL(database string) string { return url(p.port, database) }

func url(port int, database string) string {
	addr := net.JoinHostPort(process.Loopback, strconv.Itoa(port))
	return "postgres://" + superuser + "@" + addr + "/" + database + "?sslmode=disable"
}

// Database creates an empty database for the test and returns its name. It is dropped at the end of the test, along with
// connections that are still open.
func (p *Postgres) Database(tb testing.TB) string {
	tb.Helper()
	name := fmt.Sprintf("test_%d_%d", os.Getpid(), sequence.Add(1))
	p.Exec(tb, superuser, "CREATE DATABASE "+name+" TEMPLATE template0")
	tb.Cleanup(func() {
		if p.PID() != 0 {
			_, _ = p.psql(context.Background(), p.URL(superuser), "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
		}
	})
	return name
}

// Exec runs SQL by psql and returns its output, with one line for each row and columns separated by |.
func (p *Postgres) Exec(tb testing.TB, database, sql string) string {
	tb.Helper()
	return p.ExecAt(tb, p.URL(database), sql)
}

// ExecAt is [Postgres.Exec] at another address, such as that of a [PgBouncer].
func (p *Postgres) ExecAt(tb testing.TB, url, sql string) string {
	tb.Helper()
	out, err := p.psql(context.WithoutCancel(tb.Context()), url, sql) // also in a cleanup
	if err != nil {
		tb.Fatalf("%v:\n%s", err, out)
	}
	return out
}

func (p *Postgres) psql(ctx context.Context, url, sql string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	return p.exec(ctx, "psql", "--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1",
		"--dbname", url, "--command", sql)
}
