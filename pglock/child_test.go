package pglock_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/pglock"
)

// A child is a holder in a process of its own, which a test can stop. The environment names its database, and whether
// it calls InTx.
const (
	childURL  = "PGLOCK_CHILD_URL"
	childInTx = "PGLOCK_CHILD_IN_TX"
	childTTL  = time.Second
)

// inChild runs the child and reports true in the process of one.
func inChild() bool {
	url := os.Getenv(childURL)
	if url == "" {
		return false
	}
	if err := beHolder(url, os.Getenv(childInTx) != ""); err != nil {
		fmt.Println("failed:", err)
	}
	return true
}

// beHolder adds 1 to the total in a transaction, as a holder that is told when to commit.
func beHolder(url string, inTx bool) error {
	ctx := context.Background()
	db, err := sql.Open("pgx", url)
	if err != nil {
		return err
	}
	defer db.Close()
	locker, err := pglock.New(ctx, db, pglock.Options{Label: "child"})
	if err != nil {
		return err
	}
	defer locker.Close()
	lease, err := locker.Acquire(ctx, []string{"total"}, locking.Options{TTL: childTTL})
	if err != nil {
		return err
	}
	defer func() { _ = lease.Release(ctx) }()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if inTx {
		if err := pglock.InTx(ctx, tx, lease); err != nil {
			return err
		}
	}
	var total int
	if err := tx.QueryRowContext(ctx, "SELECT total FROM totals").Scan(&total); err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "UPDATE totals SET total = $1", total+1); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	fmt.Println("committed")
	return nil
}

// child is the process of a holder.
type child struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
}

func startChild(t *testing.T, url string, inTx bool) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childURL+"="+url)
	if inTx {
		cmd.Env = append(cmd.Env, childInTx+"=1")
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	c := &child{cmd, in, bufio.NewScanner(out)}
	if line := c.says(t); line != "ready" {
		t.Fatalf("the child says %q", line)
	}
	return c
}

// says returns the next line of the child.
func (c *child) says(t *testing.T) string {
	t.Helper()
	if !c.lines.Scan() {
		t.Fatalf("the child ended: %v", c.lines.Err())
	}
	return strings.TrimSpace(c.lines.Text())
}

func (c *child) commit(t *testing.T) {
	t.Helper()
	if _, err := io.WriteString(c.in, "commit\n"); err != nil {
		t.Fatal(err)
	}
}
