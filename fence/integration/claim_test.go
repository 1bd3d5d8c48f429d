package integration

import (
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/railtoken/railtoken/fence"
)

func TestClaimRefusesSmallerTokens(t *testing.T) {
	each(t, func(t *testing.T, b *bench, _ store) {
		must(t, b.claim(token(10)))
		must(t, b.claim(token(10))) // its reply may have been lost
		must(t, b.claim(token(fence.MaxToken)))
		err := b.claim(token(11))
		expect(t, "a smaller token", err, fence.ErrFenced)
		if fenced, ok := errors.AsType[*fence.FencedError](err); !ok || *fenced != (fence.FencedError{Key: "order:1", Token: 11, Seen: fence.MaxToken}) {
			t.Errorf("the error says %+v", fenced)
		}
		must(t, b.claim(fence.Token{Key: "order:2", N: 1})) // another key
	})
}

func TestCheckAcceptsOnlyTheClaimedToken(t *testing.T) {
	each(t, func(t *testing.T, b *bench, _ store) {
		expect(t, "check of a key without a token", b.check(token(10)), fence.ErrUnclaimed)
		must(t, b.claim(token(10)))
		must(t, b.check(token(10)))
		must(t, b.check(token(10)))
		expect(t, "check of a later token", b.check(token(11)), fence.ErrUnclaimed)
		must(t, b.claim(token(11)))
		expect(t, "check of an earlier token", b.check(token(10)), fence.ErrFenced)
		must(t, b.check(token(11)))
	})
}

func TestClaimOfSeveralKeysIsAllOrNothing(t *testing.T) {
	each(t, func(t *testing.T, b *bench, _ store) {
		one, two := fence.Token{Key: "one", N: 5}, fence.Token{Key: "two", N: 5}
		must(t, b.claim(two, one, two))
		must(t, b.check(one, two))
		two.N = 6
		must(t, b.claim(two))
		one.N, two.N = 7, 5
		expect(t, "claim", b.claim(one, two), fence.ErrFenced)
		one.N = 5
		must(t, b.check(one)) // it was not raised
		expect(t, "check", b.check(one, two), fence.ErrFenced)
		expect(t, "check of keys that were not claimed", b.check(one, fence.Token{Key: "three", N: 1}), fence.ErrUnclaimed)
	})
}

// The second claim waits for the end of the first one's transaction, and then reads what that has written.
func TestClaimExcludesOthersUntilTheEnd(t *testing.T) {
	each(t, func(t *testing.T, b *bench, _ store) {
		first := b.begin(sql.LevelDefault)
		must(t, b.Claim(t.Context(), first, token(10)))
		_, err := first.ExecContext(t.Context(), "UPDATE stock SET pieces = 7 WHERE id = 1")
		must(t, err)
		var second sync.WaitGroup
		committed := make(chan struct{})
		second.Go(func() {
			err := b.in(func(tx *sql.Tx) error {
				if err := b.Claim(t.Context(), tx, token(11)); err != nil {
					return err
				}
				select {
				case <-committed:
				default:
					return errors.New("the claim did not wait")
				}
				if n := b.pieces(tx); n != 7 {
					t.Errorf("it reads %d", n)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
		close(committed)
		must(t, first.Commit())
		second.Wait()
	})
}

// Keys differ by any byte, whatever the collation of the database, and the store takes them all.
func TestKeysMayHaveAnyBytes(t *testing.T) {
	each(t, func(t *testing.T, b *bench, _ store) {
		long := strings.Repeat("x", 1<<10)
		keys := []string{
			`it's`, `"quoted"`, "back`tick", `a\b`, "a%b", "a_b", "a%00b", "a\x00b", "a\x00", "a", "A", "a ", " a", "ä", "a\u0308", "ß", "ss", "\xff\xfe", "日本", "{a}", "?", "$1", ":a", "'; DROP TABLE stock; --",
			long, long + "y", strings.ToUpper(long), strings.Repeat("\x00", 1<<10), strings.Repeat("日", 1<<10), strings.Repeat("x", 255), strings.Repeat("x", 256),
		}
		for i, key := range keys {
			must(t, b.claim(fence.Token{Key: key, N: int64(i + 1)}))
		}
		for i, key := range keys {
			tok := fence.Token{Key: key, N: int64(i + 1)}
			must(t, b.check(tok))
			must(t, b.in(func(tx *sql.Tx) error { return b.Once(t.Context(), tx, tok, key) }))
			must(t, b.in(func(tx *sql.Tx) error { return b.Once(t.Context(), tx, token(1), key) }))
		}
		for i, key := range keys {
			tok := fence.Token{Key: key, N: int64(i + 1)}
			expect(t, key, b.in(func(tx *sql.Tx) error { return b.Once(t.Context(), tx, tok, key) }), fence.ErrApplied)
		}
	})
}

func TestOnceLetsOneOfManyApply(t *testing.T) {
	each(t, func(t *testing.T, b *bench, _ store) {
		const runs = 12
		var all sync.WaitGroup
		var mu sync.Mutex
		ends := map[string]int{}
		for i := range runs {
			all.Go(func() {
				err := b.Do(t.Context(), b.db, []fence.Token{token(int64(i%2 + 1))}, func(tx *sql.Tx) error {
					if err := b.Once(t.Context(), tx, token(int64(i%2+1)), "task-1"); err != nil {
						return err
					}
					_, err := tx.ExecContext(t.Context(), "UPDATE stock SET pieces = pieces + 1 WHERE id = 1")
					return err
				})
				end := "committed"
				if err != nil {
					end = "refused"
				}
				if err != nil && !errors.Is(err, fence.ErrApplied) && !errors.Is(err, fence.ErrFenced) {
					end = err.Error()
				}
				mu.Lock()
				defer mu.Unlock()
				ends[end]++
			})
		}
		all.Wait()
		if b.pieces(b.db) != 1 || ends["committed"] != 1 || ends["refused"] != runs-1 {
			t.Errorf("the effect is there %d times; runs end with %v", b.pieces(b.db), ends)
		}
		must(t, b.claim(token(3)))
		again := b.in(func(tx *sql.Tx) error {
			return errors.Join(b.Once(t.Context(), tx, token(3), "task-2"), b.Once(t.Context(), tx, token(3), "task-2"))
		})
		expect(t, "the same operation in the same transaction", again, fence.ErrApplied)
	})
}

// The orders of the keys differ, so without a common order these transactions would deadlock.
func TestClaimsWithCommonKeysAllSucceed(t *testing.T) {
	each(t, func(t *testing.T, b *bench, _ store) {
		var all sync.WaitGroup
		for i := range 8 {
			tokens := []fence.Token{{Key: "a", N: 1}, {Key: "b", N: 1}, {Key: "c", N: 1}}
			if i%2 == 1 {
				tokens[0], tokens[2] = tokens[2], tokens[0]
			}
			all.Go(func() {
				for range 5 {
					if err := b.Do(t.Context(), b.db, tokens, nil); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
	})
}

func TestAMissingTableNamesTheRemedy(t *testing.T) {
	each(t, func(t *testing.T, b *bench, s store) {
		other := fence.SQL{Dialect: s.dialect, Table: "nowhere"}
		tx := b.begin(sql.LevelDefault)
		if err := other.Claim(t.Context(), tx, token(1)); err == nil || !strings.Contains(err.Error(), "SQL.DDL prints it") {
			t.Error(err)
		}
	})
}

func TestTheTableMayHaveAnyName(t *testing.T) {
	each(t, func(t *testing.T, b *bench, s store) {
		other := fence.SQL{Dialect: s.dialect, Table: "Select \"or` update"}
		b.exec(other.DDL())
		must(t, other.Do(t.Context(), b.db, []fence.Token{token(1)}, nil))
		expect(t, "the other table", b.check(token(1)), fence.ErrUnclaimed)
	})
}

func TestPruneDeletesOnlyWhatIsOld(t *testing.T) {
	each(t, func(t *testing.T, b *bench, s store) {
		const week = 7 * 24 * 60 * 60
		old := map[fence.Dialect]string{
			fence.SQLite: "at - 604801", fence.Postgres: "at - interval '604801 seconds'", fence.MariaDB: "at - INTERVAL 604801 SECOND", fence.MySQL: "at - INTERVAL 604801 SECOND",
		}
		for _, key := range []string{"old", "new"} {
			must(t, b.Do(t.Context(), b.db, []fence.Token{{Key: key, N: 9}}, func(tx *sql.Tx) error {
				return b.Once(t.Context(), tx, fence.Token{Key: key, N: 9}, "task")
			}))
		}
		b.exec("UPDATE railtoken_fence SET at = " + old[s.dialect] + " WHERE name = 'old'")
		if _, err := b.Prune(t.Context(), b.db, 0); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("an age of 0: %v", err)
		}
		if n, err := b.Prune(t.Context(), b.db, week*1e9); n != 2 || err != nil {
			t.Errorf("%d rows deleted, %v", n, err)
		}
		must(t, b.check(fence.Token{Key: "new", N: 9}))
		expect(t, "check of a token that was pruned", b.check(fence.Token{Key: "old", N: 9}), fence.ErrUnclaimed)
	})
}
