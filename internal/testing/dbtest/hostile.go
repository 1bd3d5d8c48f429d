package dbtest

import (
	_ "embed" // for the schema
	"testing"
)

//go:embed hostile.sql
var hostile string

// HostilePath is the search_path of a session that meets the objects of [Postgres.MakeHostile] before PostgreSQL's own.
const HostilePath = "hostile,pg_catalog"

// MakeHostile adds the schema hostile to a database. Its functions, operators, types and collations have the names of
// PostgreSQL's own, and raise an error that says "hostile" when they are used.
func (p *Postgres) MakeHostile(tb testing.TB, database string) {
	tb.Helper()
	p.Exec(tb, database, hostile)
}
