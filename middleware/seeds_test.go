//go:build !race

package middleware_test

// How many random plans and sequences are played.
const (
	releaseSeeds = 40
	restartSeeds = 16
)
