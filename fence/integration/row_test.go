package integration

import (
	"database/sql"
	"testing"

	"github.com/railtoken/railtoken/fence"
)

func TestARowKeepsItsOwnToken(t *testing.T) {
	each(t, func(t *testing.T, b *bench, s store) {
		row := fence.Row{Dialect: s.dialect, Table: "stock"}
		claim := func(n int64, id ...any) error {
			return b.in(func(tx *sql.Tx) error { return row.Claim(t.Context(), tx, token(n), id...) })
		}
		check := func(n int64, id ...any) error {
			return b.in(func(tx *sql.Tx) error { return row.Check(t.Context(), tx, token(n), id...) })
		}
		expect(t, "check before any claim", check(10, 1), fence.ErrUnclaimed)
		must(t, claim(10, 1))
		must(t, claim(10, 1))
		must(t, check(10, 1))
		must(t, claim(12, 1))
		expect(t, "claim of an earlier token", claim(11, 1), fence.ErrFenced)
		expect(t, "check of an earlier token", check(10, 1), fence.ErrFenced)
		expect(t, "check of a later token", check(13, 1), fence.ErrUnclaimed)
		expect(t, "claim of a row that does not exist", claim(10, 2), sql.ErrNoRows)
		expect(t, "check of a row that does not exist", check(10, 2), sql.ErrNoRows)
		expect(t, "claim without the row's name", claim(10), fence.ErrInvalid)
		must(t, check(12, 1))
	})
}

func TestARowMayHaveSeveralIDs(t *testing.T) {
	each(t, func(t *testing.T, b *bench, s store) {
		b.exec("CREATE TABLE places (shelf VARCHAR(20), place INT, token BIGINT, PRIMARY KEY (shelf, place))")
		b.exec("INSERT INTO places (shelf, place) VALUES ('it''s', 1), ('it''s', 2)")
		row := fence.Row{Dialect: s.dialect, Table: "places", ID: []string{"shelf", "place"}, Column: "token"}
		claim := func(n int64, id ...any) error {
			return b.in(func(tx *sql.Tx) error { return row.Claim(t.Context(), tx, token(n), id...) })
		}
		must(t, claim(10, "it's", 1))
		must(t, claim(3, "it's", 2))
		expect(t, "an earlier token", claim(3, "it's", 1), fence.ErrFenced)
		row.ID = row.ID[:1]
		expect(t, "columns that name two rows", claim(20, "it's"), fence.ErrInvalid)
	})
}
