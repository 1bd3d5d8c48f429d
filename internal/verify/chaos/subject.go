package chaos

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/locking"
)

// The times of the locks of all subjects.
const (
	TTL    = 1500 * time.Millisecond
	MaxTTL = 3 * time.Second // for which a restarted server does not vote
)

// Subject is a kind of lock that clients use.
type Subject struct {
	Name   string
	Fenced bool // the ledger is
	// Damage, of a control, counts the damage that must show; nil if there must be none at all.
	Damage func(Row) int
	open   func(addrs []string) (locks, error)
}

// locks takes leases.
type locks interface {
	acquire(ctx context.Context, key string) (lease, error)
	close()
}

// lease is held until it is released or over.
type lease interface {
	token(ctx context.Context) (int64, error)
	// until is when the lease ends if it is not renewed; zero if it is over.
	until() time.Time
	over() bool
	release(ctx context.Context) error
}

// Subjects are railtoken and the controls.
var Subjects = []Subject{
	{"railtoken, five servers", true, nil, openRedlock(locking.GuardConnect)},
	{"control: the ledger does not check tokens", false, lostUpdates, openRedlock(locking.GuardConnect)},
	{"control: servers vote at once after a restart", true, twoHolders, openRedlock(locking.GuardOff)},
	{"control: SET NX on one server, no renewal", false, lostUpdates, openSetNX},
}

func lostUpdates(r Row) int { return r.LostUpdates }
func twoHolders(r Row) int  { return r.AtOnce }

func openRedlock(guard locking.GuardMode) func([]string) (locks, error) {
	return func(addrs []string) (locks, error) {
		var nodes []*redis.Options
		for _, addr := range addrs {
			nodes = append(nodes, &redis.Options{Addr: addr})
		}
		l, err := locking.NewRedlock(nodes, locking.RedlockOptions{Guard: guard, MaxTTL: MaxTTL, NodeTimeout: 100 * time.Millisecond})
		return redlock{l}, err
	}
}

type redlock struct{ *locking.Redlock }

func (l redlock) acquire(ctx context.Context, key string) (lease, error) {
	got, err := locking.Wait(ctx, l.Redlock, []string{key}, locking.Options{TTL: TTL, MaxHold: time.Minute})
	if err != nil {
		return nil, err
	}
	return redlockLease{got}, nil
}

func (l redlock) close() { _ = l.Close() }

type redlockLease struct{ *locking.Lease }

func (l redlockLease) token(ctx context.Context) (int64, error) { return l.Fence(ctx) }
func (l redlockLease) until() time.Time                         { return l.ValidUntil() }
func (l redlockLease) over() bool                               { return l.Err() != nil }
func (l redlockLease) release(ctx context.Context) error        { return l.Release(ctx) }

// openSetNX is the lock that people write by hand: a key with a TTL, which its holder deletes. Its token is the time.
func openSetNX(addrs []string) (locks, error) {
	return setNX{redis.NewClient(&redis.Options{Addr: addrs[0]})}, nil
}

type setNX struct{ *redis.Client }

func (l setNX) acquire(ctx context.Context, key string) (lease, error) {
	owner := rand.Text()
	for {
		at := time.Now()
		ok, err := l.Client.SetArgs(ctx, "lock:"+key, owner, redis.SetArgs{Mode: "NX", TTL: TTL}).Result()
		if ok == "OK" {
			return setNXLease{l.Client, "lock:" + key, owner, at}, nil
		}
		if err != nil && !errors.Is(err, redis.Nil) && ctx.Err() != nil {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (l setNX) close() { _ = l.Close() }

type setNXLease struct {
	client     *redis.Client
	key, owner string
	at         time.Time
}

func (l setNXLease) token(context.Context) (int64, error) { return l.at.UnixNano(), nil }
func (l setNXLease) until() time.Time                     { return l.at.Add(TTL) }
func (l setNXLease) over() bool                           { return false } // it does not know

func (l setNXLease) release(ctx context.Context) error {
	if owner, err := l.client.Get(ctx, l.key).Result(); err != nil || owner != l.owner {
		return errors.Join(err, errors.New("chaos: another one has the lock"))
	}
	return l.client.Del(ctx, l.key).Err()
}
