package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/lockaccess"
	"github.com/railtoken/railtoken/internal/lockwire"
	"github.com/railtoken/railtoken/locking"
)

// Deposition says which holder is to lose a key, and why. Expect, By and Why must be set.
type Deposition struct {
	// Expect is the [Holder].Owner that the operator has seen. No other holder is deposed.
	Expect string
	// By is the operator, and Why the reason. The holder's error and the audit include both.
	By, Why string
	// Floor, if not nil, lets the resource that the key protects refuse the holder: it raises the token that is stored
	// there to floor, as a handler that claims the resource does. It must leave a higher token as it is and return nil,
	// because two operators may depose a key at once. With package fence it is
	//
	//	err := guard.Do(ctx, db, []fence.Token{{Key: key, N: floor}}, nil)
	//	if errors.Is(err, fence.ErrFenced) {
	//		return nil
	//	}
	//	return err
	//
	// If Floor returns an error, Depose ends before the key is free. Depose calls Floor after the holder has lost the key,
	// and before the next holder can get it. The context of Floor ends if the key is lost meanwhile. Without Floor, a
	// paused holder may still write until the next holder has claimed the resource.
	Floor func(ctx context.Context, floor int64) error
}

// mostText limits By and Why.
const mostText = 500

// Validate returns an error that lists all problems with the deposition, or nil.
func (d Deposition) Validate() error {
	var errs []error
	if d.Expect == "" {
		errs = append(errs, errors.New("inspect: Expect is empty: give the Owner that Look has shown; a holder without one "+
			"has its lock in a store that Depose does not reach"))
	}
	for name, text := range map[string]string{"By": d.By, "Why": d.Why} {
		if text == "" || len(text) > mostText {
			errs = append(errs, fmt.Errorf("inspect: %s has %d bytes: it must have 1 to %d", name, len(text), mostText))
		}
	}
	return errors.Join(errs...)
}

// ErrChanged reports that the key is not held by the expected owner: it is free, or another holder has it. Nothing was
// done. Look again.
var ErrChanged = errors.New("inspect: the key is not held by the expected owner any more: look again")

const (
	// takenFor is how long a key stays locked if Depose fails in between: then the next holder comes.
	takenFor = 30 * time.Second
	// finish bounds the steps after the Floor, which are taken even if the caller gives up.
	finish = 5 * time.Second
	// patience is how long a lock server may take to answer, where it is not set: an operator calls once, with new
	// connections, and often because a server is slow.
	patience = time.Second
)

// Depose takes a key away from its holder, safely, and returns the floor: a fencing token that is larger than all those
// of the holder, and of the tasks to which its process may still hand the key off, and smaller than all later ones.
// These are its steps:
//
//  1. It records in the audit that it has begun.
//  2. It takes the lock from the holder in one step, so that the key is never free in between, and raises the fence.
//     From then on no call of the holder can renew, retake or delete the lock. The holder is told: its context ends,
//     with a [locking.DeposedError] in the cause, within milliseconds in a worker, and elsewhere at its next renewal.
//     Its task fails, as after any lost lease, and asynq retries it. Until it is told, its process may still hand the
//     key off to another of its tasks, which has a token below the floor, too.
//  3. It calls Floor.
//  4. It releases the key, and wakes the next task: the first of its waiters. The run of the deposed task wakes none for
//     this key.
//
// The error matches [ErrChanged] if nothing was done because the expected holder no longer has the key. The audit then
// has no entry, unless the holder lost the key during the call or was deposed within the last 10 min. After any other
// error the key may have been taken from its holder. In that case repeat the call with the same Expect: this is safe,
// and continues where the failed call stopped. If the earlier call has succeeded after all, the key is taken again
// while it is free, and the floor is larger. Meanwhile the key stays locked for 30 s at most; that is also what happens
// if the process of Depose dies.
//
// Depose takes locks on Redis only. If a worker has reported that one of its tasks holds the key in another store, the
// error says so, and matches ErrChanged. A program that does not use railtoken cannot be told that it has lost the key,
// and the audit has no label for it: stop that program first.
//
// If two operators depose a holder at once, both succeed, and the second one releases the key, after its own Floor.
//
// With several lock servers a majority must take part; the error names those that did not. NodeTimeout
// of [Options].Redlock is a second if it is zero, or a quarter of MaxTTL if that is less. If the holder has several
// keys, its lease ends for all of them, and the others become free when its handler returns, or when their TTL ends.
func (i *Inspector) Depose(ctx context.Context, key string, d Deposition) (floor int64, err error) {
	if err := d.Validate(); err != nil {
		return 0, err
	}
	locker, err := i.takingLocker()
	if err != nil {
		return 0, err
	}
	label, mark, err := i.expected(ctx, key, d.Expect)
	if err != nil {
		return 0, err
	}
	e := AuditEntry{Action: ActionDepose, Key: key, Owner: d.Expect, Holder: label, By: d.By, Why: d.Why}
	err = i.audited(ctx, e, func(e *AuditEntry) error {
		floor, err = i.depose(ctx, locker, key, mark, d)
		e.Floor = floor
		return err
	})
	return floor, err
}

// locks does what package locking does not export.
var locks = lockaccess.Of[locking.Locker, locking.Options, *locking.Lease]()

// depose does what Depose does, without the audit.
func (i *Inspector) depose(ctx context.Context, locker locking.Locker, key, mark string, d Deposition) (int64, error) {
	lease, err := locks.TakeOver(ctx, locker, lockaccess.Request{
		Key: key, Expect: d.Expect, Mark: mark, Label: locking.DefaultLabel() + "/depose", By: d.By, Why: d.Why,
		TTL: takenFor,
	})
	if held, ok := errors.AsType[*locking.HeldError](err); ok {
		return 0, fmt.Errorf("%w: %w", ErrChanged, held)
	}
	if err != nil {
		return 0, fmt.Errorf("inspect: the key could not be taken from its holder everywhere: %w: repeat this", err)
	}
	floor, err := lease.Fence(ctx)
	if err != nil {
		locks.Leave(lease)
		return 0, fmt.Errorf("inspect: the holder has lost the key, but the floor is not certain: %w: repeat this", err)
	}
	if d.Floor != nil {
		if err := d.Floor(lease.Context(ctx), floor); err != nil {
			locks.Leave(lease)
			return floor, fmt.Errorf("inspect: the holder has lost the key, but Floor has failed: %w: repeat this within %v, "+
				"when the key becomes free", err, takenFor)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finish)
	defer cancel()
	// A lock that was lost is no longer this one's to release: another operator deposes the same holder, and releases the
	// key, or it has expired.
	if err := lease.Release(ctx); err != nil && !errors.Is(err, locking.ErrLost) {
		return floor, fmt.Errorf("inspect: the holder has lost the key, but it is not free yet: %w: repeat this, or wait "+
			"for up to %v", err, takenFor)
	}
	if _, err := (*line.Engine)(i.queue).WakeNext(ctx, key, line.WakeOptions{}); err != nil {
		return floor, fmt.Errorf("inspect: the key is free, but the next task was not woken and waits for its timer: %w",
			err)
	}
	return floor, nil
}

// expected returns the label and the mark of the owner that is expected to hold a key. The error matches ErrChanged if
// no lock server says that it does, and none has a record of an earlier Depose that was not finished.
func (i *Inspector) expected(ctx context.Context, key, owner string) (label, mark string, err error) {
	found, err := i.locks(ctx, key)
	if err != nil {
		return "", "", err
	}
	n := slices.IndexFunc(found, func(l ServerLock) bool { return l.Owner == owner })
	if n >= 0 {
		return found[n].Label, found[n].mark, nil
	}
	names, err := lockwire.KeysOf(key, i.opts.RedisKey)
	if err != nil {
		return "", "", err
	}
	for _, s := range i.servers {
		if record := s.read(ctx, lockwire.RecordKey(names.Fence, owner)); record != "" {
			r, _ := lockwire.ParseRecord(record)
			return "", r.Mark, nil
		}
	}
	if h := holderOf(found, i.quorum()); h != nil {
		return "", "", fmt.Errorf("%w: %s has it", ErrChanged, h.Owner)
	}
	workers, err := i.Workers(ctx)
	if err != nil {
		return "", "", err
	}
	unseen, err := i.unseenHolder(ctx, workers, key)
	if err != nil {
		return "", "", err
	}
	if unseen != nil {
		return "", "", fmt.Errorf("%w: task %s has it in another store (%s), where Depose cannot take it: stop the process of "+
			"its worker, %s/%d", ErrChanged, unseen.Task.Task, unseen.Backend, unseen.Task.Host, unseen.Task.PID)
	}
	return "", "", fmt.Errorf("%w: it is free", ErrChanged)
}

// read returns the value of a Redis key on a lock server, or an empty string.
func (s *server) read(ctx context.Context, name string) string {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return s.client.Get(ctx, name).Val()
}

// takingLocker returns the Locker that takes keys away. It is made at the first Depose, so that an Inspector that only
// reads needs no rights to more.
func (i *Inspector) takingLocker() (locking.Locker, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return nil, errors.New("inspect: the Inspector is closed")
	}
	if i.locker != nil {
		return i.locker, nil
	}
	if len(i.opts.Nodes) > 0 {
		opts := i.opts.Redlock
		if opts.NodeTimeout == 0 {
			opts.NodeTimeout = min(patience, cmp.Or(opts.MaxTTL, opts.FenceTTL, defaultMaxTTL)/4)
		}
		redlock, err := locking.NewRedlock(i.opts.Nodes, opts)
		if err != nil {
			return nil, err
		}
		i.locker, i.closeLocker = redlock, redlock.Close
		return redlock, nil
	}
	single, err := locking.NewSingle(i.servers[0].client, locking.SingleOptions{RedisKey: i.opts.RedisKey})
	if err != nil {
		return nil, err
	}
	i.locker, i.closeLocker = single, single.Close
	return single, nil
}
