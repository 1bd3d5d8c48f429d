//go:build !unix

package tasks

import "time"

// processorTime is not known here.
func processorTime() time.Duration { return 0 }
