//go:build !thorough

package locking

// batchRounds is small in make test: make thorough plays all.
const batchRounds = 2
