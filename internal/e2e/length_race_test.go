//go:build race

package e2e_test

import "time"

// With the race detector, which makes a task several times as dear, there are fewer tasks: make thorough runs all.
const (
	sequenced = 1_500
	resharded = 40
	soaked    = 1_500
)

// outageLength is how long Redis is away while tasks wait: make thorough has it be longer than asynq's lease.
const outageLength = 5 * time.Second
