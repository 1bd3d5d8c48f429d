//go:build thorough

package e2e_test

import "time"

const (
	sequenced   = 10_000           // tasks enqueued in sequence
	resharded   = 100              // tasks of each key that drain while slots move
	clustered   = 15               // tasks of each key in each of two queues on a Cluster
	soaked      = 3_000            // tasks of a soak
	soakedEvery = time.Second      // from one kill of it to the next
	itemed      = 40               // tasks of items of a soak
	prices      = 10_000           // that articles get
	repriced    = 40 * time.Second // the time in which they do
	superseding = 1_000            // tasks that supersede each other
)

// outageLength is how long Redis is away while tasks wait, longer than asynq's lease.
const outageLength = 45 * time.Second
