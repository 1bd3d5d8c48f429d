package integration

import (
	"database/sql"
	"errors"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/railtoken/railtoken/fence"
)

// Whatever the key, the operation and the tokens are, a call is refused with a typed error or keeps its promise.
func FuzzClaim(f *testing.F) {
	for _, key := range []string{"order:1", "it's", `"`, "a\x00b", "\xff", "", strings.Repeat("k", 1<<10)} {
		f.Add(key, key+"op", int64(1), int64(2))
		f.Add(key, "", int64(0), int64(-1))
		f.Add(key, key, int64(1<<53-1), int64(1<<53))
	}
	params := url.Values{"_pragma": {"journal_mode(WAL)", "synchronous(OFF)"}, "_txlock": {"immediate"}}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(f.TempDir(), "fuzz.db")+"?"+params.Encode())
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = db.Close() })
	guard := fence.SQL{Dialect: fence.SQLite}
	if _, err := db.ExecContext(f.Context(), guard.DDL()); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, key, op string, first, second int64) {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		valid := func(n int64) bool { return key != "" && n > 0 && n <= fence.MaxToken }
		want := func(what string, err error, valid bool, then error) {
			if !valid {
				then = fence.ErrInvalid
			}
			if !errors.Is(err, then) {
				t.Errorf("%s of %q, %q, %d, %d: %v; want %v", what, key, op, first, second, err, then)
			}
		}
		a, b := fence.Token{Key: key, N: first}, fence.Token{Key: key, N: second}
		want("claim", guard.Claim(t.Context(), tx, a), valid(first), nil)
		want("mark", guard.Once(t.Context(), tx, a, op), valid(first) && op != "", nil)
		want("second mark", guard.Once(t.Context(), tx, a, op), valid(first) && op != "", fence.ErrApplied)
		if !valid(first) {
			return
		}
		var fenced error
		if second < first {
			fenced = fence.ErrFenced
		}
		want("second claim", guard.Claim(t.Context(), tx, b), valid(second), fenced)
		if valid(second) && second > first {
			want("check", guard.Check(t.Context(), tx, a), true, fence.ErrFenced)
		}
	})
}
