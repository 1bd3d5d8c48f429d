package locking

import "context"

// Locker makes one attempt to take keys and returns at once. It is safe for concurrent use.
//
// [Single], [Redlock] and [Gate] are Lockers, and [New] makes one from a backend.
type Locker interface {
	// Acquire returns a lease for all of the keys, or an error and none of them. The error matches [ErrHeld] if another
	// holder has one of the keys. Invalid options, no key at all, and a key that the caller already holds
	// ([ErrReentrant]) are refused without asking a server. After any other error the outcome is unknown, and Acquire
	// has given back what it could.
	//
	// Any string is a key, including the empty one. The order of keys does not matter, and duplicates count once.
	//
	// ctx bounds the attempt only; the lease outlives it.
	Acquire(ctx context.Context, keys []string, opts Options) (*Lease, error)
}

// Watcher is implemented by a [Locker] that can notify waiting callers of a release.
type Watcher interface {
	// Watch returns a channel that receives a value after the release of any of the keys, if an attempt with
	// [Options.Notify] was refused before. Several releases may come as one value. A notification may be late or lost, so
	// a caller must also try again after a pause. The watch lasts until stop is called, even if ctx ends; the channel is
	// not closed then. Further calls of stop do nothing.
	Watch(ctx context.Context, keys []string) (released <-chan struct{}, stop func(), err error)
}
