package dbtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/railtoken/railtoken/internal/testing/process"
	"github.com/railtoken/railtoken/internal/testing/testserver"
)

// Folders outside PATH in which packages put servers. Those of PostgreSQL have one folder for each version.
const (
	postgresFolders = "/usr/lib/postgresql/*/bin"
	systemFolder    = "/usr/sbin"
)

// FindPostgres returns why PostgreSQL is not installed, or nil.
func FindPostgres() error {
	_, err := find("postgres")
	return err
}

// FindPgBouncer returns why PgBouncer is not installed, or nil.
func FindPgBouncer() error {
	_, err := find("pgbouncer")
	return err
}

// FindMariaDB returns why MariaDB is not installed, or nil.
func FindMariaDB() error {
	for _, name := range []string{"mariadbd", "mariadb-install-db", "mariadb"} {
		if _, err := find(name); err != nil {
			return err
		}
	}
	return nil
}

// find returns the path of a program: of the newest version if there are several.
func find(program string) (string, error) {
	folders, err := filepath.Glob(postgresFolders)
	if err != nil {
		return "", err
	}
	slices.SortFunc(folders, func(a, b string) int { return version(b) - version(a) })
	for _, folder := range append(folders, systemFolder) {
		if path, err := exec.LookPath(filepath.Join(folder, program)); err == nil {
			return path, nil
		}
	}
	return exec.LookPath(program)
}

// version returns the version in the path of a folder, 0 if there is none.
func version(folder string) int {
	n, err := strconv.Atoi(filepath.Base(filepath.Dir(folder)))
	if err != nil {
		return 0
	}
	return n
}

// runToEnd runs a program to its end, and returns what it writes. Its log is a file in its folder.
func runToEnd(ctx context.Context, c process.Command) (output string, err error) {
	c.Log = filepath.Join(c.Dir, filepath.Base(c.Path)+"-"+strconv.FormatInt(sequence.Add(1), 10)+".log")
	proc, err := process.Start(c)
	if err != nil {
		return "", err
	}
	defer os.Remove(c.Log)
	select {
	case <-proc.Exited():
	case <-ctx.Done():
		proc.Kill()
	}
	text, err := os.ReadFile(c.Log)
	if !proc.Succeeded() && err == nil {
		err = fmt.Errorf("%s failed", filepath.Base(c.Path))
	}
	return strings.TrimSpace(string(text)), err
}

// program returns the path of a program. Without it the test ends: see [testserver.Needed].
func program(tb testing.TB, name string) string {
	tb.Helper()
	path, err := find(name)
	testserver.Needed(tb, name, err)
	return path
}
