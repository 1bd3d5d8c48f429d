//go:build !race

package e2e_test

// sequenced is how many tasks are enqueued in sequence.
const sequenced = 10_000
