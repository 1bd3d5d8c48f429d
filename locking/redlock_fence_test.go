package locking_test

import (
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // the name that Redis gives to a script
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/lockwire"
	"github.com/railtoken/railtoken/locking"
)

// farAhead is how far above every clock a fence counter is set.
const farAhead = 1e14

// calls returns how often each server was asked to run a script.
func calls(t testing.TB, clients []*redis.Client) []int {
	t.Helper()
	counts := make([]int, len(clients))
	for i, c := range clients {
		info, err := c.Info(t.Context(), "commandstats").Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`cmdstat_eval(?:sha)?:calls=(\d+)`).FindAllStringSubmatch(info, -1) {
			n, _ := strconv.Atoi(m[1])
			counts[i] += n
		}
	}
	return counts
}

// scriptsKnown makes a locker use each script once on every server, so that none is sent twice later.
func scriptsKnown(t testing.TB, l locking.Locker, clients []*redis.Client) {
	t.Helper()
	lease := acquire(t, l, locking.Options{}, "known")
	everywhere(t, clients, "known")
	if err := lease.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	release(t, lease)
	nowhere(t, clients, "known")
	for before := calls(t, clients); ; before = calls(t, clients) { // a renewal may still be on its way to a slow one
		<-time.After(20 * time.Millisecond)
		if after := calls(t, clients); fmt.Sprint(before) == fmt.Sprint(after) {
			return
		}
	}
}

// counters returns the fence counter of a key on each server.
func counters(t testing.TB, clients []*redis.Client, key string) []int64 {
	t.Helper()
	all := make([]int64, len(clients))
	for i, c := range clients {
		value, err := c.Get(t.Context(), counterOf(key)).Result()
		if errors.Is(err, redis.Nil) {
			continue
		}
		counter, _, _ := strings.Cut(value, " ") // marks of owners that were given up may follow
		if all[i], err = strconv.ParseInt(counter, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// fence returns the token of a lease, which must come.
func fence(t testing.TB, lease *locking.Lease) int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	token, err := lease.Fence(ctx)
	if err != nil {
		t.Fatalf("no token: %v", err)
	}
	return token
}

func TestATokenCostsNothingWhenTheNodesAgree(t *testing.T) {
	t.Parallel()
	servers, nodes := startNodes(t, 5)
	clients := admins(t, servers)
	l := newRedlock(t, nodes, unguarded)
	scriptsKnown(t, l, clients)
	before := calls(t, clients)
	lease := acquire(t, l, locking.Options{}, "order:1")
	token := fence(t, lease)
	everywhere(t, clients, "order:1")
	for i, counter := range counters(t, clients, "order:1") {
		if counter != token {
			t.Errorf("node %d has %d, the token is %d", i, counter, token)
		}
	}
	for i, n := range calls(t, clients) {
		if n -= before[i]; n != 1 {
			t.Errorf("%d calls of a script on node %d, want the one of the acquisition", n, i)
		}
	}
	release(t, lease)
}

func TestLaggingNodesNeedOneMoreRoundTrip(t *testing.T) {
	t.Parallel()
	servers, nodes := startNodes(t, 5)
	clients := admins(t, servers)
	l := newRedlock(t, nodes, unguarded)
	scriptsKnown(t, l, clients)
	// With two nodes away all of the others are needed, so the token is the largest of them all.
	servers[1].Kill()
	servers[3].Kill()
	living := []*redis.Client{clients[0], clients[2], clients[4]}
	most := time.Now().UnixMicro() + farAhead
	for i, ahead := range []int64{-1000, 0} { // the third has no counter yet
		do(t, living[i], "SET", counterOf("order:1"), most+ahead)
	}
	before := calls(t, living)
	lease := acquire(t, l, locking.Options{}, "order:1")
	token := fence(t, lease)
	if token != most+1 {
		t.Errorf("token %d, want %d, the next one of the node that is furthest", token, most+1)
	}
	if got := counters(t, living, "order:1"); got[0] != token || got[1] != token || got[2] != token {
		t.Errorf("the token is %d and the nodes that must hold it have %d", token, got)
	}
	for i, n := range calls(t, living) {
		want := map[bool]int{true: 1, false: 2}[i == 1]
		if n -= before[i]; n != want {
			t.Errorf("%d calls of a script on living node %d, want %d", n, i, want)
		}
	}
	again := fence(t, lease)
	if err := lease.Renew(t.Context()); err != nil || again != token || fence(t, lease) != token {
		t.Errorf("the token changes from %d to %d; renewal: %v", token, fence(t, lease), err)
	}
	release(t, lease)
	next := acquire(t, l, locking.Options{}, "order:1")
	if got := fence(t, next); got <= token {
		t.Errorf("token %d after %d", got, token)
	}
}

func TestAMajorityHoldsEachToken(t *testing.T) {
	t.Parallel()
	servers, nodes := startNodes(t, 5)
	clients := admins(t, servers)
	l := newRedlock(t, nodes, unguarded)
	for i := range 50 {
		key := fmt.Sprint("order:", i)
		now := time.Now().UnixMicro()
		least := now + farAhead + 1
		for j, c := range clients {
			counter := now + farAhead + rand.Int64N(3) // every majority has one of the first three
			if j >= 3 {
				counter = now + rand.Int64N(2*farAhead) - farAhead
			}
			do(t, c, "SET", counterOf(key), counter)
		}
		lease := acquire(t, l, locking.Options{}, key)
		token := fence(t, lease)
		same := 0
		for _, counter := range counters(t, clients, key) {
			if counter == token {
				same++
			}
		}
		if same < 3 || token < least {
			t.Errorf("%d of 5 nodes hold token %d, want at least 3 and %d: %d", same, token, least,
				counters(t, clients, key))
		}
		release(t, lease)
	}
}

// loseRenewals returns nodes on whose networks the renewals are lost, with what brings the scripts' names to nothing
// else.
func loseRenewals(t testing.TB, nodes []*redis.Options) (lossy []*redis.Options, lose func(bool)) {
	t.Helper()
	sum := sha1.Sum([]byte(lockwire.Renew)) //nolint:gosec // see above
	renewal := []byte(hex.EncodeToString(sum[:]))
	var network link
	for _, o := range nodes {
		lossy = append(lossy, &redis.Options{Addr: o.Addr, Dialer: network.dial})
	}
	return lossy, func(on bool) {
		network.losing(func(sent []byte) bool { return on && bytes.Contains(sent, renewal) })
	}
}

func TestAWaitForATokenEndsWithTheLease(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		opts locking.Options
		end  func(l *locking.Lease)
		want error
	}{
		"expired": {locking.Options{TTL: locking.MinTTL}, func(*locking.Lease) {}, locking.ErrLost},
		"released": {
			locking.Options{},
			func(l *locking.Lease) { _ = l.Release(context.Background()) },
			locking.ErrReleased,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers, nodes := startNodes(t, 3)
			clients := admins(t, servers)
			nodes, lose := loseRenewals(t, nodes)
			l := newRedlock(t, nodes,
				locking.RedlockOptions{Guard: locking.GuardOff, NodeTimeout: 500 * time.Millisecond})
			scriptsKnown(t, l, clients)
			for i, c := range clients { // no two nodes agree
				do(t, c, "SET", counterOf("order:1"), time.Now().UnixMicro()+farAhead+int64(i))
			}
			lose(true)
			lease := acquire(t, l, tt.opts, "order:1")
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if token, err := lease.Fence(ctx); !errors.Is(err, context.DeadlineExceeded) || token != 0 {
				t.Errorf("token %d, error %v of a commit that no node has confirmed, want that of the context", token,
					err)
			}
			waiting := make(chan error, 1)
			go func() {
				_, err := lease.Fence(t.Context())
				waiting <- err
			}()
			tt.end(lease)
			select {
			case err := <-waiting:
				if !errors.Is(err, tt.want) {
					t.Errorf("error %v, want %v", err, tt.want)
				}
			case <-time.After(patience):
				t.Error("who waits for the token waits for ever")
			}
		})
	}
}

func TestACommitIsRepeatedUntilConfirmed(t *testing.T) {
	t.Parallel()
	servers, nodes := startNodes(t, 3)
	clients := admins(t, servers)
	nodes, lose := loseRenewals(t, nodes)
	l := newRedlock(t, nodes, locking.RedlockOptions{Guard: locking.GuardOff, NodeTimeout: 300 * time.Millisecond})
	scriptsKnown(t, l, clients)
	for i, c := range clients {
		do(t, c, "SET", counterOf("order:1"), time.Now().UnixMicro()+farAhead+int64(i))
	}
	lose(true)
	lease := acquire(t, l, locking.Options{}, "order:1")
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	if _, err := lease.Fence(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want that of the context", err)
	}
	lose(false)
	soon, cancel := context.WithTimeout(t.Context(), 6*time.Second) // before the first renewal of the lease, after 10 s
	defer cancel()
	token, err := lease.Fence(soon)
	if err != nil {
		t.Fatalf("no token: %v", err)
	}
	same := 0
	for _, counter := range counters(t, clients, "order:1") {
		if counter == token {
			same++
		}
	}
	if same < 2 {
		t.Errorf("%d of 3 nodes hold the token, want 2", same)
	}
	release(t, lease)
}

// Two processes, one of whose clocks is a day ahead, take turns while other clients push the counters up, and another
// node is away each time.
func TestTokensGrowWhicheverNodeIsAway(t *testing.T) {
	t.Parallel()
	servers, nodes := startNodes(t, 5)
	clients := admins(t, servers)
	opts := unguarded
	opts.FenceTTL = 48 * time.Hour // a clock follows counters within it
	lockers := []*locking.Redlock{newRedlock(t, nodes, opts), newRedlock(t, nodes, opts)}
	for _, l := range lockers {
		scriptsKnown(t, l, clients)
	}
	for _, c := range clients { // a clock follows the largest counter that it has seen
		do(t, c, "SET", lockOf("ahead"), "another holder")
		do(t, c, "SET", counterOf("ahead"), time.Now().Add(24*time.Hour).UnixMicro())
	}
	refused(t, lockers[0], "ahead")
	last := int64(0)
	for i := range 120 {
		for j, c := range clients {
			if rand.IntN(3) == 0 {
				ahead := rand.Int64N(1 << rand.IntN(40))
				now := counters(t, clients[j:j+1], "order:1")[0]
				do(t, c, "SET", counterOf("order:1"), max(now, time.Now().UnixMicro())+ahead)
			}
		}
		away := rand.IntN(5)
		servers[away].Pause()
		block := 1 + rand.IntN(3)*rand.IntN(20)
		var lease *locking.Lease
		await(t, "acquired", func() bool {
			var err error
			lease, err = lockers[i%2].Acquire(t.Context(), []string{"order:1"}, locking.Options{}.WithBlock(block))
			return err == nil
		})
		token := fence(t, lease)
		if token <= last {
			t.Fatalf("round %d: token %d after %d", i, token, last)
		}
		last = token + int64(block) - 1
		servers[away].Resume()
		release(t, lease)
	}
}

func TestBlocksOfTokensAreDisjoint(t *testing.T) {
	t.Parallel()
	servers, nodes := startNodes(t, 3)
	clients := admins(t, servers)
	lockers := []*locking.Redlock{
		newRedlock(t, nodes, unguarded), newRedlock(t, nodes, unguarded),
		newRedlock(t, nodes, unguarded),
	}
	for i, c := range clients { // so far ahead that no clock helps
		do(t, c, "SET", counterOf("order:1"), time.Now().UnixMicro()+farAhead+int64(i)*10)
	}
	last := int64(0)
	for i := range 60 {
		block := []int{1, 16, 256, 2}[i%4]
		lease := eventuallyWith(t, lockers[i%3], locking.Options{}.WithBlock(block), "order:1")
		first := fence(t, lease)
		if first <= last {
			t.Fatalf("the block of %d that begins with %d is not above %d, the end of the one before", block, first,
				last)
		}
		last = first + int64(block) - 1
		if got := counters(t, clients, "order:1"); max(got[0], got[1], got[2]) < last {
			t.Fatalf("the block ends with %d, above the counters %d", last, got)
		}
		release(t, lease)
	}
}

// eventuallyWith tries to acquire a key until it succeeds.
func eventuallyWith(t testing.TB, l locking.Locker, opts locking.Options, key string) *locking.Lease {
	t.Helper()
	var lease *locking.Lease
	await(t, key+" acquired", func() bool {
		var err error
		lease, err = l.Acquire(t.Context(), []string{key}, opts)
		return err == nil
	})
	return lease
}

func TestEachOfSeveralKeysHasItsOwnToken(t *testing.T) {
	t.Parallel()
	servers, nodes := startNodes(t, 3)
	clients := admins(t, servers)
	l := newRedlock(t, nodes, unguarded)
	most := time.Now().UnixMicro() + farAhead
	// Each node is ahead with another key: the renewal must bring each of them to its own token.
	for i, c := range clients {
		do(t, c, "SET", counterOf(fmt.Sprint("order:", i)), most+int64(i))
	}
	servers[2].Kill()
	lease := acquire(t, l, locking.Options{}, "order:0", "order:1", "order:2")
	for i, least := range []int64{most + 1, most + 2, 1} {
		key := fmt.Sprint("order:", i)
		token, err := lease.FenceOf(t.Context(), key)
		if err != nil || token < least || i == 2 && token > most {
			t.Errorf("token of %s is %d, error %v, want at least %d", key, token, err, least)
		}
		if got := counters(t, clients[:2], key); got[0] != token || got[1] != token {
			t.Errorf("the token of %s is %d, the nodes have %d", key, token, got)
		}
	}
	release(t, lease)
}
