//go:build race

package e2e_test

import "time"

// sequenced is smaller with the race detector, which makes a task several times as dear: make thorough runs all.
const sequenced = 3_000

// outageLength is how long Redis is away while tasks wait: make thorough has it be longer than asynq's lease.
const outageLength = 5 * time.Second
