package locks

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// Rueidislock is github.com/redis/rueidis/rueidislock with a majority of the servers, client-side caching and the
// option that it recommends for Redis 7. It waits for the invalidation of the key. An answer may take a second, because a
// caller whose first answer is late by its default of 20 ms waits for a release that never comes.
var Rueidislock = Kind{Name: NameRueidislock, open: func(addrs []string, _ int) (*Locker, error) {
	option := rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: addrs},
		KeyValidity:    TTL,
		KeyMajority:    int32(len(addrs)/2 + 1),
		NoLoopTracking: true,
		TryNextAfter:   time.Second,
	}
	if len(addrs) > 1 {
		option.ClientBuilder = newNodes
	}
	locks, err := rueidislock.NewLocker(option)
	if err != nil {
		return nil, err
	}
	by := func(acquire func(context.Context, string) (context.Context, context.CancelFunc, error)) Lock {
		return func(ctx context.Context, key string, hold func()) error {
			_, release, err := acquire(ctx, key)
			if err == nil {
				hold()
				release()
			}
			return err
		}
	}
	return over(func() error {
		locks.Close()
		return nil
	}, &Locker{
		Try: by(locks.TryWithContext),
		// The context given is also that of the lock, which must outlast the wait.
		Wait: by(locks.WithContext),
	}, nil)
}}

// nodes sends the i-th key of a lock to the i-th of several independent servers. By itself rueidis takes several
// addresses for those of one cluster, in which it is left to chance how many of a lock's keys lie on the same server.
type nodes struct {
	rueidis.Client // the first

	all []rueidis.Client
}

func newNodes(option rueidis.ClientOption) (rueidis.Client, error) {
	var n nodes
	for _, addr := range option.InitAddress {
		option.InitAddress = []string{addr}
		option.ForceSingleClient = true
		client, err := rueidis.NewClient(option)
		if err != nil {
			n.Close()
			return nil, fmt.Errorf("rueidis on %s: %w", addr, err)
		}
		n.all = append(n.all, client)
	}
	n.Client = n.all[0]
	return &n, nil
}

// Do sends a script for one key, EVALSHA script 1 rueidislock:number:name, to the server with this number.
func (n *nodes) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	words := cmd.Commands()
	if len(words) >= 4 && words[2] == "1" {
		if parts := strings.SplitN(words[3], ":", 3); len(parts) == 3 {
			if i, err := strconv.Atoi(parts[1]); err == nil && 0 <= i && i < len(n.all) {
				return n.all[i].Do(ctx, cmd)
			}
		}
	}
	panic(fmt.Sprintf("rueidislock sends %q", words)) // not what its source said when this was written
}

// Close ends the connections to all.
func (n *nodes) Close() {
	for _, client := range n.all {
		client.Close()
	}
}
