//go:build !unix

package usage

import (
	"errors"
	"time"
)

// process fails: only Unix tells.
func process() (time.Duration, error) { return 0, errors.ErrUnsupported }
