//go:build thorough

package locking

// batchRounds is how many times a hundred random batches are compared with their calls made alone.
const batchRounds = 8
