package fence_test

import (
	"fmt"

	"github.com/railtoken/railtoken/fence"
)

// The table, for a migration.
func ExampleSQL_DDL() {
	fmt.Println(fence.SQL{Dialect: fence.Postgres}.DDL())
	// Output:
	// CREATE TABLE IF NOT EXISTS "railtoken_fence" (
	//   name pg_catalog.text COLLATE pg_catalog."C" NOT NULL,            -- the business key
	//   op   pg_catalog.text COLLATE pg_catalog."C" NOT NULL DEFAULT '', -- an operation that has been applied; empty in the row of the token
	//   n    bigint NOT NULL,                                            -- the largest token that was claimed
	//   at   pg_catalog.timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	//   PRIMARY KEY (name, op)
	// )
}
