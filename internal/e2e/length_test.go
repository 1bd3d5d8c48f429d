//go:build !race

package e2e_test

import "time"

const (
	sequenced = 10_000 // tasks enqueued in sequence
	resharded = 100    // tasks of each key that drain while slots move
	soaked    = 3_000  // tasks of a soak
)

// outageLength is how long Redis is away while tasks wait, longer than asynq's lease.
const outageLength = 45 * time.Second
