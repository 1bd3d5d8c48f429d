package line_test

import (
	"fmt"
	"time"

	"github.com/railtoken/railtoken/internal/line"
)

// asynq rounds the time of a delayed task down to whole seconds; this rounds it up.
func ExampleWholeSeconds() {
	now := time.Date(2026, 1, 2, 3, 4, 5, 700_000_000, time.UTC)
	fmt.Println(line.WholeSeconds(now, 2*time.Second))
	// Output: 2.3s
}
