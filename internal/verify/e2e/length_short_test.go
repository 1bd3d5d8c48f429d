//go:build !thorough

package e2e_test

import "time"

// make test runs few tasks, make thorough all.
const (
	sequenced   = 600
	resharded   = 20
	clustered   = 6
	soaked      = 600
	soakedEvery = 600 * time.Millisecond
	itemed      = 20
	prices      = 800
	repriced    = 4 * time.Second
	superseding = 150
)

// outageLength is how long Redis is away while tasks wait: make thorough has it be longer than asynq's lease.
const outageLength = 5 * time.Second
