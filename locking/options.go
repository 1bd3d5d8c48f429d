package locking

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/railtoken/railtoken/internal/leasing"
)

// Defaults and limits of [Options].
const (
	DefaultTTL     = 30 * time.Second
	MinTTL         = time.Second
	DefaultMaxHold = 30 * time.Minute
)

// Options configures one attempt. The zero value uses the defaults.
type Options struct {
	// TTL is how long the lock outlives a crashed holder: at least 1 s, at most MaxHold; 30 s when zero. A [Redlock]
	// refuses a TTL above its MaxTTL.
	TTL time.Duration

	// MaxHold is how long the lease can be renewed; then it is lost. It is at least TTL, and at most 100 years, as every
	// other duration. When zero, it is 30 min, or TTL if that is longer.
	MaxHold time.Duration

	// Label names the holder to refused callers, for example "host/1234/order:audit"; the [Locker]'s own label when empty.
	// Unprintable characters are replaced, and the label is cut off after 200 bytes.
	Label string

	// Notify is how long a refused attempt subscribes to the releases of the key; zero for no subscription. While a key has
	// a subscription, each release notifies every [Watcher] of the key, and [Lease.ShouldNotify] tells the holder. [Do],
	// [Wait] and [Collect] set it. Set it yourself in a caller that waits with Acquire and a [Watcher], to well above the
	// pause between two attempts.
	Notify time.Duration

	// block is how many consecutive fencing tokens a Gate reserves: 1 when zero, at most lockwire.MaxBlock.
	block int
}

// withDefaults returns the options with every zero replaced by its default.
func (o Options) withDefaults() Options {
	if o.TTL == 0 {
		o.TTL = DefaultTTL
	}
	if o.MaxHold == 0 {
		o.MaxHold = max(DefaultMaxHold, o.TTL)
	}
	if o.block == 0 {
		o.block = 1
	}
	return o
}

// Validate returns an error that lists all problems with the options, or nil.
func (o Options) Validate() error {
	o = o.withDefaults()
	errs := []error{
		leasing.CheckDuration("locking: TTL", o.TTL, MinTTL),
		leasing.CheckDuration("locking: MaxHold", o.MaxHold, leasing.LeastDuration),
		leasing.CheckDuration("locking: Notify", o.Notify, leasing.LeastDuration),
	}
	if o.MaxHold >= 0 && o.MaxHold < o.TTL {
		errs = append(errs, fmt.Errorf("locking: MaxHold is %v, below the TTL of %v: raise MaxHold or lower TTL",
			o.MaxHold, o.TTL))
	}
	return errors.Join(errs...)
}

// outlives returns an error if fence counters that are kept for fenceTTL may expire before their lease.
func (o Options) outlives(fenceTTL time.Duration) error {
	if fenceTTL == 0 {
		return errors.New("locking: the Locker is a zero value: make it by NewSingle or NewRedlock")
	}
	if o.MaxHold < fenceTTL {
		return nil
	}
	return fmt.Errorf("locking: MaxHold is %v, FenceTTL %v: a fence counter must outlive its lease: "+
		"lower MaxHold or raise FenceTTL", o.MaxHold, fenceTTL)
}

// prepare returns the keys sorted and without duplicates, and the options with their defaults. It returns an error if
// there is no key or an option is invalid.
func prepare(keys []string, opts Options) ([]string, Options, error) {
	if len(keys) == 0 {
		return nil, opts, errors.New("locking: no key to lock: name at least one")
	}
	if err := opts.Validate(); err != nil {
		return nil, opts, err
	}
	if len(keys) == 1 {
		return []string{keys[0]}, opts.withDefaults(), nil
	}
	sorted := slices.Clone(keys)
	slices.Sort(sorted)
	return slices.Compact(sorted), opts.withDefaults(), nil
}

// DefaultLabel returns the name of this process, "host/pid".
func DefaultLabel() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	return host + "/" + strconv.Itoa(os.Getpid())
}
