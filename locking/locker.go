package locking

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Locker makes one attempt to take keys and answers at once.
//
// Implementations are safe for use by many goroutines at the same time.
type Locker interface {
	// Acquire returns a lease for all of the keys, or an error and none of them. The error matches [ErrHeld] when
	// another holder has one of the keys; any other error says that the attempt could not be decided, and that as much
	// of it as could be reached was taken back. The order of keys does not matter, and a key that is named twice counts once.
	//
	// The context bounds the attempt only; the lease outlives it.
	Acquire(ctx context.Context, keys []string, opts Options) (*Lease, error)
}

// Watcher is what a [Locker] offers besides when it can tell waiting callers of a release.
type Watcher interface {
	// Watch returns a watch on the release of any of the keys. A notice is a hint: it may come late or not at all, so
	// whoever waits for it must try again after some time without it.
	Watch(ctx context.Context, keys []string) (*Watch, error)
}

// Limits of [Options].
const (
	DefaultTTL     = 30 * time.Second
	MinTTL         = time.Second
	DefaultMaxHold = 30 * time.Minute
)

// Options says how one attempt is made. The zero value has every default.
type Options struct {
	// TTL is how long the lock outlives a holder that has crashed. At least 1 s, and at most MaxHold; 30 s when zero. A [Redlock] refuses
	// one above its MaxTTL.
	TTL time.Duration

	// MaxHold is the longest time that the lease is renewed for; after it the lease is lost. At least TTL; 30 min when zero.
	MaxHold time.Duration

	// Label names the holder to those who are refused, for example "host/1234/order:audit". The [Locker]'s own label
	// when empty. Bytes that do not print are replaced, and what is over 200 bytes is cut off.
	Label string

	// Notify asks, should the attempt be refused, that the release of the key be announced: to every [Watch] on it, and
	// to the one who releases it by [Lease.ShouldNotify]. It is kept for this long; no announcement when zero.
	Notify time.Duration

	// Block reserves that many fencing tokens in a row, of which [Lease.Fence] is the first. It is for decorators that hand a
	// lease off to a next holder without asking the server again, as [Gate] does. 1 when zero; at most 256.
	Block int
}

const maxBlock = 256

// withDefaults returns the options with every zero replaced by its default.
func (o Options) withDefaults() Options {
	if o.TTL == 0 {
		o.TTL = DefaultTTL
	}
	if o.MaxHold == 0 {
		o.MaxHold = max(DefaultMaxHold, o.TTL)
	}
	if o.Block == 0 {
		o.Block = 1
	}
	return o
}

// Validate returns every fault of the options at once, or nil.
func (o Options) Validate() error {
	o = o.withDefaults()
	var errs []error
	if o.TTL < MinTTL {
		errs = append(errs, fmt.Errorf("locking: TTL is %v: it must be at least %v", o.TTL, MinTTL))
	}
	if o.MaxHold < o.TTL {
		errs = append(errs, fmt.Errorf("locking: MaxHold is %v, below the TTL of %v: raise MaxHold or lower TTL", o.MaxHold, o.TTL))
	}
	if o.Notify < 0 {
		errs = append(errs, fmt.Errorf("locking: Notify is %v: it cannot be negative", o.Notify))
	}
	if o.Block < 1 || o.Block > maxBlock {
		errs = append(errs, fmt.Errorf("locking: Block is %d: it must be from 1 to %d", o.Block, maxBlock))
	}
	return errors.Join(errs...)
}

// outlives returns an error when fence counters that are kept for fenceTTL may expire under a lease.
func (o Options) outlives(fenceTTL time.Duration) error {
	if o.MaxHold < fenceTTL {
		return nil
	}
	return fmt.Errorf("locking: MaxHold is %v, FenceTTL %v: a fence counter must outlive its lease: lower MaxHold or raise FenceTTL",
		o.MaxHold, fenceTTL)
}

// Prepare returns what an implementation of [Locker] works with: the keys sorted and each once, and the options with
// their defaults. It returns an error when there is no key or an option is out of its range.
func Prepare(keys []string, opts Options) ([]string, Options, error) {
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
