package leasing

import (
	"fmt"
	"time"
)

const (
	// LeastDuration is the shortest duration that is not rounded to zero on its way to Redis.
	LeastDuration = time.Millisecond
	// Most is the longest: 100 years. Twice as much after today is still a date that time.Time.UnixNano can return.
	Most = 100 * 365 * 24 * time.Hour
)

// CheckDuration returns an error if a configured duration is not zero, which stands for a default, and is not from least to
// [Most]. The name is that of the package and the field.
func CheckDuration(name string, d, least time.Duration) error {
	return CheckDurationUpTo(name, d, least, Most)
}

// CheckDurationUpTo is Check for a field with another maximum.
func CheckDurationUpTo(name string, d, least, most time.Duration) error {
	switch {
	case d < 0:
		return fmt.Errorf("%s is %v: it cannot be negative", name, d)
	case d != 0 && d < least:
		return fmt.Errorf("%s is %v: it must be at least %v", name, d, least)
	case d > most:
		return fmt.Errorf("%s is %v: it must be at most %v, %d years", name, d, most, most/(365*24*time.Hour))
	}
	return nil
}
