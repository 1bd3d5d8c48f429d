package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// noTx fails a test that sends a statement.
type noTx struct{ t testing.TB }

func (n noTx) ExecContext(_ context.Context, query string, _ ...any) (sql.Result, error) {
	n.t.Errorf("sent: %s", query)
	return nil, errLost
}

func (n noTx) QueryContext(_ context.Context, query string, _ ...any) (*sql.Rows, error) {
	n.t.Errorf("sent: %s", query)
	return nil, errLost
}

func TestInvalidCallsSendNothing(t *testing.T) {
	t.Parallel()
	ctx, tx, ok := t.Context(), noTx{t}, Token{"k", 1}
	pool := new(sql.DB)
	for _, d := range []Dialect{Postgres, MySQL, MariaDB, SQLite} {
		s, row := SQL{Dialect: d}, Row{Dialect: d, Table: "orders"}
		for name, err := range map[string]error{
			"no token":            s.Claim(ctx, tx),
			"token 0":             s.Claim(ctx, tx, Token{"k", 0}),
			"2^53":                s.Check(ctx, tx, Token{"k", 1 << 53}),
			"negative":            s.Once(ctx, tx, Token{"k", -1}, "op"),
			"no operation":        s.Once(ctx, tx, ok, ""),
			"two tokens of a key": s.Claim(ctx, tx, ok, Token{"k", 2}),
			"a pool":              s.Claim(ctx, pool, ok),
			"no transaction":      s.Claim(ctx, nil, ok),
			"no database":         s.Do(ctx, nil, []Token{ok}, nil),
			"no table":            SQL{Dialect: d, Table: "a."}.Claim(ctx, tx, ok),
			"a NUL":               SQL{Dialect: d, Table: "a\x00"}.Claim(ctx, tx, ok),
			"no dialect":          SQL{}.Claim(ctx, tx, ok),
			"another dialect":     SQL{Dialect: "oracle"}.Check(ctx, tx, ok),
			"row, token 0":        row.Claim(ctx, tx, Token{"k", 0}, 1),
			"row, a pool":         row.Check(ctx, pool, ok, 1),
			"row, no dialect":     Row{Table: "orders"}.Claim(ctx, tx, ok, 1),
			"row, no table":       Row{Dialect: d}.Claim(ctx, tx, ok, 1),
			"row, no ID":          row.Claim(ctx, tx, ok),
			"row, empty column":   Row{Dialect: d, Table: "orders", ID: []string{""}}.Claim(ctx, tx, ok, 1),
		} {
			if !errors.Is(err, ErrInvalid) || Retryable(err) {
				t.Errorf("%s, %s: %v", d, name, err)
			}
		}
		if _, err := s.Prune(ctx, tx, time.Minute); !errors.Is(err, ErrInvalid) {
			t.Errorf("prune: %v", err)
		}
	}
}

func TestTokensAreClaimedInOneOrder(t *testing.T) {
	t.Parallel()
	a, b, c := Token{"a", 3}, Token{"b", 2}, Token{"c", 1}
	got, err := sortTokens([]Token{c, a, b, a, c})
	if err != nil || !slices.Equal(got, []Token{a, b, c}) {
		t.Error(got, err)
	}
}

func TestNamesOfTablesAreQuoted(t *testing.T) {
	t.Parallel()
	for d, want := range map[Dialect]string{Postgres: `"App"."x""; DROP"`, SQLite: `"App"."x""; DROP"`, MySQL: "`App`.`x\"; DROP`", MariaDB: "`App`.`x\"; DROP`"} {
		if got, err := d.quote(`App.x"; DROP`); got != want || err != nil {
			t.Errorf("%s: %s, %v", d, got, err)
		}
		if ddl := (SQL{Dialect: d, Table: `App.x"; DROP`}).DDL(); !strings.Contains(ddl, want) {
			t.Error(ddl)
		}
	}
}

func TestRulesCompareTokens(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		n, seen      int64
		claim, write error
	}{
		{10, 0, nil, ErrUnclaimed},
		{10, 9, nil, ErrUnclaimed},
		{10, 10, nil, nil},
		{10, 11, ErrFenced, ErrFenced},
		{MaxToken, MaxToken - 1, nil, ErrUnclaimed},
	} {
		tok := Token{"k", test.n}
		if err := mayClaim(tok, test.seen); !errors.Is(err, test.claim) {
			t.Errorf("claim of %d after %d: %v", test.n, test.seen, err)
		}
		if err := mayWrite(tok, test.seen); !errors.Is(err, test.write) {
			t.Errorf("write of %d after %d: %v", test.n, test.seen, err)
		}
	}
}

// postgresError is like those of pgx and pq.
type postgresError struct{ state string }

func (e postgresError) Error() string    { return "postgres " + e.state }
func (e postgresError) SQLState() string { return e.state }

func TestLostRacesAreToldFromOtherErrors(t *testing.T) {
	t.Parallel()
	wrap := func(err error) error { return errors.Join(errLost, fmt.Errorf("in a function: %w", err)) }
	for _, test := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errLost, false},
		{ErrRetry, true},
		{wrap(ErrRetry), true},
		{&FencedError{}, false},
		{ErrApplied, false},
		{errors.Join(ErrFenced, ErrRetry), false}, // trying again cannot help
		{postgresError{"40001"}, true},
		{wrap(postgresError{"40P01"}), true},
		{postgresError{"55P03"}, true},
		{postgresError{"23505"}, false},
		{wrap(&postgresError{"40001"}), true},
	} {
		if got := Retryable(test.err); got != test.want {
			t.Errorf("%v: %t", test.err, got)
		}
	}
	for number, want := range map[int64]fault{1213: lostRace, 1205: lostRace, 1020: oldSnapshot, 1146: noTable, 1062: otherFault} {
		if got := mysqlFault(number); got != want {
			t.Errorf("MySQL error %d: %v", number, got)
		}
	}
	for code, want := range map[int64]fault{5: lostRace, 6: lostRace, 261: lostRace, 517: oldSnapshot, 19: otherFault, 1: noTable} {
		if got := sqliteFault(code, "no such table: x"); got != want {
			t.Errorf("SQLite code %d: %v", code, got)
		}
	}
}
