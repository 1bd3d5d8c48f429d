package pglock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/railtoken/railtoken/locking"
)

// ErrTransaction reports that a transaction cannot hold a lease, for example because it is read-only or on another
// database. The text says why, and what to do.
var ErrTransaction = errors.New("pglock: the transaction cannot hold the lease")

// Codes of PostgreSQL, https://www.postgresql.org/docs/current/errcodes-appendix.html.
const (
	readOnly        = "25006"
	noSchema        = "3F000"
	noTable         = "42P01"
	noFunction      = "42883"
	noPrivilege     = "42501"
	noStatement     = "26000"
	statementExists = "42P05"
)

// transient are the codes, or their classes, after which another attempt may succeed: broken connections, conflicts of
// transactions, exhausted resources, servers that shut down or fail over, and a server that has become a replica.
var transient = []string{"08", "40", "53", "55P03", "57P", "57014", "58", readOnly}

// codeOf returns the SQLSTATE of an error, or "" if the server has not answered. pgx and lib/pq both tell it.
func codeOf(err error) string {
	if e, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		return e.SQLState()
	}
	return ""
}

func isMissing(err error) bool {
	code := codeOf(err)
	return code == noSchema || code == noTable || code == noFunction
}

// isClosed reports whether the *sql.DB was closed. database/sql exports no error for that.
func isClosed(err error) bool {
	return err != nil && strings.Contains(err.Error(), "sql: database is closed")
}

// isUndone reports whether a statement that failed with err certainly has no effect: the server has refused it, and not
// just ended the connection.
func isUndone(err error) bool {
	if isClosed(err) {
		return true
	}
	code := codeOf(err)
	ended := strings.HasPrefix(code, "08") || strings.HasPrefix(code, "57P") || strings.HasPrefix(code, "58")
	return code != "" && !ended
}

// classify makes err match [locking.ErrUnavailable] if another attempt may succeed: unless the caller has ended this
// one, or the server has refused it for good.
func classify(ctx context.Context, db *sql.DB, err error) error {
	if ctx.Err() != nil {
		if cause := context.Cause(ctx); !errors.Is(err, cause) {
			return fmt.Errorf("%w: %w", cause, err)
		}
		return err
	}
	if errors.Is(err, errClosed) {
		return err
	}
	if isClosed(err) {
		return fmt.Errorf("the *sql.DB of the locks is closed: close it after the last release and after the Locker: %w", err)
	}
	code := codeOf(err)
	for _, prefix := range transient {
		if code == "" || strings.HasPrefix(code, prefix) {
			return fmt.Errorf("%w: %w", locking.ErrUnavailable, withPool(db, withRemedy(err)))
		}
	}
	return withRemedy(err)
}

// withPool adds that the client's pool was exhausted.
func withPool(db *sql.DB, err error) error {
	s := db.Stats()
	if s.MaxOpenConnections == 0 || s.InUse < s.MaxOpenConnections || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("all %d connections of the pool are in use: raise SetMaxOpenConns, or give the locks a *sql.DB of "+
		"their own: %w", s.MaxOpenConnections, err)
}

// withRemedy adds what to do about an error of the server.
func withRemedy(err error) error {
	switch codeOf(err) {
	case noSchema, noTable, noFunction:
		return fmt.Errorf("%w: call pglock.Create or run the SQL of pglock.Schema: %w", ErrSchema, err)
	case noPrivilege:
		return fmt.Errorf("grant USAGE on the schema railtoken and its sequence, and SELECT, INSERT, UPDATE and DELETE "+
			"on its tables: %w", err)
	case noStatement, statementExists:
		return fmt.Errorf("a pooler changes sessions under the driver's prepared statements: with pgx set "+
			"default_query_exec_mode=exec, with lib/pq binary_parameters=yes: %w", err)
	case readOnly:
		return fmt.Errorf("connect to the primary: %w", err)
	}
	return err
}
