package contestant

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// Rueidislock is github.com/redis/rueidis/rueidislock with a majority of the servers, client-side caching and the option that it
// recommends for Redis 7. It waits for the invalidation of the key.
var Rueidislock = Kind{Name: NameRueidislock, Open: func(addrs []string) (Locker, error) {
	option := rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: addrs},
		KeyValidity:    TTL,
		KeyMajority:    int32(len(addrs)/2 + 1),
		NoLoopTracking: true,
	}
	if len(addrs) > 1 {
		option.ClientBuilder = newNodes
	}
	locks, err := rueidislock.NewLocker(option)
	if err != nil {
		return nil, err
	}
	return &rueidislocker{locks}, nil
}}

type rueidislocker struct{ locks rueidislock.Locker }

// Pair acquires and releases. It makes one attempt: one that got no answer in time (20 ms by default) would otherwise wait for a
// release that nobody makes.
func (r *rueidislocker) Pair(ctx context.Context, key string) error {
	_, release, err := r.locks.TryWithContext(ctx, key)
	if err != nil {
		return err
	}
	release()
	return nil
}

// Do waits for the key.
func (r *rueidislocker) Do(ctx context.Context, key string, hold func()) error {
	// The context given is also that of the lock, which must outlast the wait.
	_, release, err := r.locks.WithContext(ctx, key)
	if err != nil {
		return err
	}
	hold()
	release()
	return nil
}

// Close ends the connections.
func (r *rueidislocker) Close() error {
	r.locks.Close()
	return nil
}

// nodes sends the i-th key of a lock to the i-th of several independent servers. By itself rueidis takes several addresses for those of
// one cluster, in which it is left to chance how many of a lock's keys lie on the same server.
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

// Do sends a script for one key to the server that is the key's.
func (n *nodes) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	i, err := nodeOf(cmd.Commands())
	if err != nil || i >= len(n.all) {
		panic(fmt.Sprintf("rueidislock sends %q: %v", cmd.Commands(), err)) // not what its source said when this was written
	}
	return n.all[i].Do(ctx, cmd)
}

// Close ends the connections to all.
func (n *nodes) Close() {
	for _, client := range n.all {
		client.Close()
	}
}

// nodeOf reads the number in EVALSHA script 1 rueidislock:number:name.
func nodeOf(cmd []string) (int, error) {
	if len(cmd) < 4 || cmd[2] != "1" {
		return 0, errors.New("not a script for one key")
	}
	_, rest, _ := strings.Cut(cmd[3], ":")
	number, _, _ := strings.Cut(rest, ":")
	return strconv.Atoi(number)
}
