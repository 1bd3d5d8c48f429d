//go:build race

package locking

// batchRounds is smaller with the race detector, which makes a round several times as long: make thorough plays all.
const batchRounds = 2
