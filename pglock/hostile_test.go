package pglock_test

import (
	"context"
	"database/sql"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/railtoken/railtoken/internal/testing/dbtest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/locking/lockingtest"
	"github.com/railtoken/railtoken/pglock"
)

// Everything that PostgreSQL finds by its search_path is hostile here: another user may own what comes first. Each
// statement of the package must be sent at least once, so a new one is covered or the test fails.
func TestNoStatementUsesHostileObjects(t *testing.T) {
	t.Parallel()
	server := dbtest.SharedPostgres(t)
	name := server.Database(t)
	server.MakeHostile(t, name)
	url := server.URL(name) + "&synchronous_commit=off&search_path=" + dbtest.HostilePath
	sent := &statements{texts: map[string]bool{}, ended: make(chan string, 1<<16)}
	db := sent.open(t, url)
	if err := pglock.Create(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), pglock.Schema()); err != nil {
		t.Errorf("the schema once more: %v", err)
	}
	own := open(t, server.URL(name))
	t.Run("suite", func(t *testing.T) {
		lockingtest.Run(t, lockingtest.Harness{
			New:  func(t *testing.T) locking.Locker { return newLocker(t, db, pglock.Options{Listen: url}) },
			Lose: func(t *testing.T, key string) { expire(t, own, key) },
		})
	})
	l := newLocker(t, db, pglock.Options{})
	lease := acquire(t, l, locking.Options{}, "a", "b")
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := pglock.InTx(t.Context(), tx, lease); err != nil {
		t.Error(err)
	}
	again := acquire(t, l, locking.Options{}, "again")
	if err := pglock.InTx(t.Context(), tx, again); err != nil {
		t.Error(err)
	}
	if alone, err := untouched(t, lease); !alone || err != nil {
		t.Errorf("untouched: %v, %v", alone, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := again.Release(ctx); err == nil {
		t.Error("a release does not wait for a transaction")
	}
	sent.await(t, "SELECT place, busy FROM railtoken.undo")
	if err := tx.Commit(); err != nil {
		t.Error(err)
	}
	acquire(t, l, locking.Options{}, "left") // a row that the cleaning meets
	pglock.MakeCleaningDue(l)
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
	sent.await(t, "SELECT railtoken.clean")
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	sent.coverThePackage(t)
}

// statements records what a driver sends.
type statements struct {
	mu    sync.Mutex
	texts map[string]bool
	ended chan string // receives each statement that has ended
	met   []string    // errors of a hostile object, or of what it has made of a statement
}

// open returns a handle whose statements are recorded.
func (s *statements) open(t *testing.T, url string) *sql.DB {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.Tracer = s
	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(32)
	db.SetMaxIdleConns(8)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

type sentText struct{}

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, sentText{}, data.SQL)
}

func (s *statements) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	text, _ := ctx.Value(sentText{}).(string)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.texts[text] = true
	if e, ok := errors.AsType[*pgconn.PgError](data.Err); ok && (e.Code == "P0001" || strings.HasPrefix(e.Code, "42")) && !expected(text) {
		s.met = append(s.met, text+": "+data.Err.Error())
	}
	s.ended <- text
}

// expected reports whether a statement fails as it should: Create looks for the schema before it is there.
func expected(text string) bool { return strings.HasSuffix(text, "FROM railtoken.installation") }

// await waits for the end of a statement.
func (s *statements) await(t *testing.T, text string) {
	t.Helper()
	for deadline := time.After(quick); ; {
		select {
		case ended := <-s.ended:
			if strings.HasPrefix(ended, text) {
				return
			}
		case <-deadline:
			t.Fatalf("%q was not sent", text)
		}
	}
}

// coverThePackage fails the test if a statement in the package's source was not sent.
func (s *statements) coverThePackage(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Collect(maps.Keys(s.texts))
	listen := []string{"LISTEN railtoken"} // goes through a connection of its own, which the driver does not trace
	for _, met := range s.met {
		t.Error(met)
	}
	found := 0
	for _, text := range sourceStatements(t) {
		found++
		if !slices.ContainsFunc(slices.Concat(all, listen), func(sent string) bool { return strings.HasPrefix(sent, text) }) {
			t.Errorf("%q was never sent: add a call to this test", text)
		}
	}
	if found < 7 {
		t.Errorf("found %d statements in the package's source, want at least 7", found)
	}
}

// sourceStatements returns the string literals of the package that begin as SQL statements do.
func sourceStatements(t *testing.T) (texts []string) {
	t.Helper()
	begins := regexp.MustCompile(`^\s*(SELECT|WITH|INSERT|UPDATE|DELETE|LISTEN|SET|CREATE|CALL|DO)\s`)
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), f.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if text, err := strconv.Unquote(lit.Value); err == nil && begins.MatchString(text) {
					texts = append(texts, text)
				}
			}
			return true
		})
	}
	return texts
}
