//go:build race

package middleware_test

// Fewer with the race detector, which makes each several times as long: make thorough plays all.
const (
	releaseSeeds = 12
	restartSeeds = 4
)
