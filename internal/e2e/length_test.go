//go:build !race

package e2e_test

import "time"

// sequenced is how many tasks are enqueued in sequence.
const sequenced = 10_000

// outageLength is how long Redis is away while tasks wait, longer than asynq's lease.
const outageLength = 45 * time.Second
