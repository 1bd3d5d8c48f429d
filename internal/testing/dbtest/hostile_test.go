package dbtest_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/railtoken/railtoken/internal/testing/dbtest"
)

func TestHostileObjectsComeBeforePostgresOwn(t *testing.T) {
	t.Parallel()
	p := dbtest.SharedPostgres(t)
	name := p.Database(t)
	p.MakeHostile(t, name)
	conn, err := pgx.Connect(t.Context(), p.URL(name)+"&search_path="+dbtest.HostilePath)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for expression, hostile := range map[string]bool{
		"2::bigint * interval '1 second'":      true,
		"1 = 1":                                true,
		"'a'::varchar = 'b'::varchar":          true,
		"clock_timestamp()":                    true,
		"max(1::bigint)":                       true,
		"'a'::text":                            true,
		"'{a}'::bytea[]":                       true,
		"extract(epoch FROM pg_catalog.now())": false,
		"2::bigint OPERATOR(pg_catalog.*) '1 second'::interval": false,
		"1 OPERATOR(pg_catalog.=) 1":                            false,
		"pg_catalog.now()":                                      false,
		"'a'::pg_catalog.text":                                  false,
		"CAST(1 AS bigint)":                                     false,
	} {
		_, err := conn.Exec(t.Context(), "SELECT "+expression)
		met := err != nil && strings.Contains(err.Error(), "hostile")
		if met != hostile || err != nil && !met {
			t.Errorf("%s meets a hostile object: %v (error %v), want %v", expression, met, err, hostile)
		}
	}
}
