package main

import (
	"fmt"
	"io"

	"github.com/railtoken/railtoken/fence"
)

// names are how reports call the stores.
var names = map[fence.Dialect]string{fence.SQLite: "SQLite", fence.Postgres: "PostgreSQL", fence.MariaDB: "MariaDB"}

// printHeader begins the table.
func printHeader(out io.Writer) {
	fmt.Fprintln(out, "| store | mode | cents off | sum of balances | transfers | applied twice | repeats found | refused | stops | kills | seconds |")
	fmt.Fprintln(out, "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
}

// print writes a row.
func (r result) print(out io.Writer) {
	fmt.Fprintf(out, "| %s | %s | %d | %+d | %d | %d | %d | %d | %d | %d | %.1f |\n", names[r.Dialect], r.Mode, r.off, r.sum, r.done,
		r.duplicates, r.runs[again], r.runs[refused], r.stops, r.kills, r.took.Seconds())
}
