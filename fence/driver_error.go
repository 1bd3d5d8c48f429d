package fence

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// fault is what an error of a database driver means for a transaction.
type fault int

const (
	otherFault  fault = iota
	lostRace          // the transaction may succeed when it runs again
	oldSnapshot       // the same; it has read before its first write
	noTable           // the table does not exist
)

// faultOf returns the fault that an error, or one that it wraps, stands for. Drivers are not imported. They are known
// by a method (SQLState of pgx and pq), or by the package and the fields of their error types.
func faultOf(err error) (f fault, found bool) {
	if err == nil {
		return otherFault, false
	}
	if f, found := ownFault(err); found {
		return f, true
	}
	switch e := err.(type) { //nolint:errorlint // this walks the tree itself
	case interface{ Unwrap() error }:
		return faultOf(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			if f, found := faultOf(inner); found {
				return f, true
			}
		}
	}
	return otherFault, false
}

// ownFault is faultOf for an error without those that it wraps.
func ownFault(err error) (f fault, found bool) {
	if e, ok := err.(interface{ SQLState() string }); ok {
		return postgresFault(e.SQLState()), true
	}
	value := reflect.Indirect(reflect.ValueOf(err))
	if !value.IsValid() {
		return otherFault, false
	}
	pkg := value.Type().PkgPath()
	switch {
	case strings.Contains(pkg, "mysql"):
		if number, ok := integer(value, "Number"); ok {
			return mysqlFault(number), true
		}
	case strings.Contains(pkg, "sqlite"):
		code, ok := integer(value, "ExtendedCode")
		if method := reflect.ValueOf(err).MethodByName("ExtendedCode"); !ok && method.IsValid() {
			code, ok = result(method)
		}
		if method := reflect.ValueOf(err).MethodByName("Code"); !ok && method.IsValid() {
			code, ok = result(method)
		}
		if ok {
			return sqliteFault(code, err.Error()), true
		}
	}
	return otherFault, false
}

// postgresFault is for PostgreSQL's SQLSTATE (appendix A of its manual).
func postgresFault(state string) fault {
	switch state {
	case "40001", "40P01", "55P03": // serialization failure, deadlock, lock not available
		return lostRace
	case "42P01":
		return noTable
	}
	return otherFault
}

// mysqlFault is for the error numbers of MySQL and MariaDB.
func mysqlFault(number int64) fault {
	switch number {
	case 1213, 1205: // deadlock, lock wait timeout
		return lostRace
	case 1020: // MariaDB with innodb_snapshot_isolation: the record has changed since the last read
		return oldSnapshot
	case 1146:
		return noTable
	}
	return otherFault
}

// sqliteFault is for SQLite's result codes, of which the low byte is the primary one.
func sqliteFault(code int64, text string) fault {
	switch {
	case code == 517: // SQLITE_BUSY_SNAPSHOT
		return oldSnapshot
	case code&0xff == 5, code&0xff == 6: // SQLITE_BUSY, SQLITE_LOCKED
		return lostRace
	case code&0xff == 1 && strings.Contains(text, "no such table"):
		return noTable
	}
	return otherFault
}

// integer returns the value of an integer field of a struct.
func integer(value reflect.Value, name string) (int64, bool) {
	if value.Kind() != reflect.Struct {
		return 0, false
	}
	return number(value.FieldByName(name))
}

// result calls a method without arguments that returns an integer.
func result(method reflect.Value) (int64, bool) {
	if method.Type().NumIn() != 0 || method.Type().NumOut() != 1 {
		return 0, false
	}
	return number(method.Call(nil)[0])
}

func number(v reflect.Value) (int64, bool) {
	switch {
	case !v.IsValid():
		return 0, false
	case v.CanInt():
		return v.Int(), true
	case v.CanUint():
		return int64(v.Uint()), true //nolint:gosec // error codes are small
	}
	return 0, false
}

// failure says what a failed statement was for, and what to do about it. Errors of this package stay as they are.
func failure(verb string, err error) error {
	for _, own := range []error{ErrFenced, ErrApplied, ErrRetry, ErrUnclaimed, ErrInvalid} {
		if errors.Is(err, own) {
			return err
		}
	}
	if err == nil {
		return nil
	}
	switch fault, _ := faultOf(err); fault {
	case oldSnapshot:
		return fmt.Errorf("%w: %s: the transaction has read before the claim, and what it has read is old: make the claim its first "+
			"statement, and with SQLite begin the transaction IMMEDIATE (open the database with _txlock=immediate): %w", ErrRetry, verb, err)
	case lostRace:
		return fmt.Errorf("%w: %s: %w", ErrRetry, verb, err)
	case noTable:
		return fmt.Errorf("fence: %s: create the table first (SQL.DDL prints it): %w", verb, err)
	}
	return fmt.Errorf("fence: %s: %w", verb, err)
}
