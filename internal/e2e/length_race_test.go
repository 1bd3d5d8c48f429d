//go:build race

package e2e_test

// sequenced is smaller with the race detector, which makes a task several times as dear: make thorough runs all.
const sequenced = 3_000
