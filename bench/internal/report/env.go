package report

import "regexp"

// Env is what a part of the benchmark is told.
type Env struct {
	// Dir is for files of servers; it is removed at the end.
	Dir string
	// Reps is how many rounds to measure, 5 or more for figures to quote.
	Reps int
	// Scale is how many percent of the usual work to do: 100, less for a first look.
	Scale int
	// Run chooses sections and tables by their names.
	Run *regexp.Regexp
	// Orders is a CSV file with orders; generated ones are used when it is empty.
	Orders string
	// Say tells how far the part has come.
	Say func(format string, args ...any)
}
