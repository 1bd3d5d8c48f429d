package pglock

import (
	"context"
	"database/sql"
	_ "embed" // for the schema
	"errors"
	"fmt"
)

// schemaVersion is the version that [Schema] creates, and the only one that this package works with.
const schemaVersion = 3

//go:embed schema.sql
var schema string

// ErrSchema reports that the database lacks the schema railtoken, or has another version of it. The text says which.
// Call [Create], or run the statements of [Schema].
var ErrSchema = errors.New("pglock: the database has no usable schema")

var errNewer = fmt.Errorf("%w", ErrSchema)

// Schema returns the SQL statements that create the schema railtoken: its table, sequence and functions, for a
// migration tool. They may be run again, and bring an earlier version up to date while programs that use it run on; start
// the new programs afterwards. Users of the locks need USAGE on the
// schema and the sequence, and SELECT, INSERT, UPDATE and DELETE on its tables.
func Schema() string { return schema }

// Create runs [Schema] in one transaction, unless the database already has this version. It may be called each time a
// program starts, even by several programs at once. The first call needs the right to create a schema in the database,
// and a call that updates the schema must come from its owner. A newer version stays as it is, and the error matches
// [ErrSchema].
func Create(ctx context.Context, db *sql.DB) error {
	if db == nil {
		return errors.New("pglock: Create got a nil database: give it an *sql.DB")
	}
	if _, err := check(ctx, db); err == nil || errors.Is(err, errNewer) {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("pglock: create the schema: %w", err)
	}
	defer func() { _ = tx.Rollback() }()
	// Statements that create the same thing at the same time fail in spite of IF NOT EXISTS.
	if _, err = tx.ExecContext(ctx, "SELECT pg_catalog.pg_advisory_xact_lock(7382914460172939614)"); err == nil {
		_, err = tx.ExecContext(ctx, schema)
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		return fmt.Errorf("pglock: create the schema: %w", err)
	}
	return nil
}

// installation identifies a database.
type installation struct{ id, database string }

// check returns the installation of a database, or an error that matches ErrSchema.
func check(ctx context.Context, db *sql.DB) (installation, error) {
	var in installation
	var version int
	err := db.QueryRowContext(ctx, "SELECT id::pg_catalog.text, pg_catalog.current_database()::pg_catalog.text, version FROM railtoken.installation").
		Scan(&in.id, &in.database, &version)
	switch {
	case isMissing(err) || errors.Is(err, sql.ErrNoRows):
		return in, fmt.Errorf("%w: the schema railtoken is missing: call pglock.Create or run the SQL of pglock.Schema: %w",
			ErrSchema, err)
	case err != nil:
		return in, fmt.Errorf("pglock: look at the schema: %w", withRemedy(err))
	case version < schemaVersion:
		return in, fmt.Errorf("%w: it has version %d, this program needs %d: call pglock.Create or run the SQL of "+
			"pglock.Schema", ErrSchema, version, schemaVersion)
	case version > schemaVersion:
		return in, fmt.Errorf("%w: it has version %d, this program needs %d: update this program",
			errNewer, version, schemaVersion)
	}
	return in, nil
}
