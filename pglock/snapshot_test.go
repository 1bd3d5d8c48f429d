package pglock_test

import (
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/pglock"
)

// While a report, a backup or a replication slot keeps an old snapshot open, PostgreSQL keeps each version of each row.
func TestAnOldSnapshotMakesNoLeaseDearer(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	l := d.locker(t, pglock.Options{})
	db := d.open(t)
	db.SetMaxOpenConns(1)
	old := d.begin(t, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if _, err := old.ExecContext(t.Context(), "SELECT 1"); err != nil {
		t.Fatal(err)
	}
	pair := func() {
		t.Helper()
		if err := acquire(t, l, locking.Options{}, "key").Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	pairs := 0
	run := func(until int) (pages int) {
		t.Helper()
		began := time.Now()
		first := pairs
		for ; pairs < until; pairs++ {
			pair()
		}
		d.exec(t, "VACUUM railtoken.locks") // as autovacuum does
		pagesOfAPair(t, db, "key")          // PostgreSQL plans the statements
		// It plans them again, and reads its catalog, after it has vacuumed or analyzed a table by itself.
		pages = min(pagesOfAPair(t, db, "key"), pagesOfAPair(t, db, "key"), pagesOfAPair(t, db, "key"))
		t.Logf("%d pairs: %d pages, %v a pair", pairs, pages, time.Since(began)/time.Duration(until-first))
		return pages
	}
	early, late := run(50), run(1000)
	if late > early+20 {
		t.Errorf("a pair reads %d pages after 1000 others, and %d after 50", late, early)
	}
	if rows := d.count(t, "SELECT count(*) FROM railtoken.locks"); rows != 2 {
		t.Errorf("one key has %d rows, want 2", rows)
	}
}

func (d database) count(t *testing.T, query string) (n int) {
	t.Helper()
	if err := d.open(t).QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// pagesOfAPair returns how many pages an attempt, a refusal, a renewal, a transaction and a release read.
func pagesOfAPair(t *testing.T, db *sql.DB, key string) (pages int) {
	t.Helper()
	array := fmt.Sprintf(`'{"\\x%s"}'::bytea[]`, hex.EncodeToString([]byte(key)))
	for _, call := range []string{
		"acquire(" + array + ", 'owner', 'label', 30000, 0)", "acquire(" + array + ", 'other', 'label', 30000, 0)",
		"renew(" + array + ", 'owner', 30000)", "in_tx(" + array + ", '{owner}', '{1}', 30000)",
		"undo(" + array + ", '{other}')", "clean('', 10)", "release(" + array + ", '{owner}')",
	} {
		var plan []byte
		query := "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM railtoken." + call
		if err := db.QueryRowContext(t.Context(), query).Scan(&plan); err != nil {
			t.Fatalf("%s: %v", call, err)
		}
		var parsed []struct {
			Plan struct {
				Hit  int `json:"Shared Hit Blocks"`
				Read int `json:"Shared Read Blocks"`
			}
		}
		if err := json.Unmarshal(plan, &parsed); err != nil {
			t.Fatal(err)
		}
		pages += parsed[0].Plan.Hit + parsed[0].Plan.Read
	}
	return pages
}
