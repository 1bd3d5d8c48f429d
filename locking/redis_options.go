package locking

import (
	"time"

	"github.com/railtoken/railtoken/internal/leasing"
	"github.com/railtoken/railtoken/internal/lockwire"
)

// DefaultFenceTTL is how long a key's fence counter is kept after its last lease.
const DefaultFenceTTL = time.Hour

// setDefaults fills in the defaults of the options that Single and Redlock share.
func setDefaults(label *string, fenceTTL *time.Duration, redisKey *func(string) string) {
	if *label = lockwire.CleanLabel(*label); *label == "" {
		*label = lockwire.CleanLabel(DefaultLabel())
	}
	if *fenceTTL == 0 {
		*fenceTTL = DefaultFenceTTL
	}
	if *redisKey == nil {
		*redisKey = lockwire.LockKey
	}
}

// checkFenceTTL allows twice the longest MaxHold, which it must exceed.
func checkFenceTTL(d time.Duration) error {
	return leasing.CheckDurationUpTo("locking: FenceTTL", d, MinTTL, 2*leasing.Most)
}
