package locking_test

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // the name that Redis gives to a script
	"encoding/hex"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/lockwire"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// acquireCalls matches the pieces of a request that call the acquire script, which the server knows.
func acquireCalls(t *testing.T) func([]byte) bool {
	t.Helper()
	sum := sha1.Sum([]byte(lockwire.Acquire)) //nolint:gosec // see above
	name := []byte(hex.EncodeToString(sum[:]))
	return func(request []byte) bool { return bytes.Contains(request, name) }
}

// takesAgain has a node lose the lock of order:1, and the lease take it again there by a call that is held. One that
// went out together with other calls is not recognised: then the node loses the lock once more.
func takesAgain(t *testing.T, lease *locking.Lease, node *redis.Client, held *redistest.Held) {
	t.Helper()
	await(t, "the lock is being taken again", func() bool {
		do(t, node, "DEL", lockOf("order:1"))
		if err := lease.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-held.Caught:
			return true
		default:
			return false
		}
	})
}

// A call that takes the lock of one node, and whose answer never came, arrives after the release.
func TestADoubtfulRetakeLocksNothing(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		first bool // it is the acquire call, and else a later one that takes the lock again
		again bool // a further call takes the lock before the release
	}{
		"acquire":                          {first: true},
		"acquire, taken again since":       {first: true, again: true},
		"taken again":                      {},
		"taken again, and once more since": {again: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers, nodes := startNodes(t, 3)
			clients := admins(t, servers)
			proxy := redistest.NewProxy(t, nodes[0].Addr)
			nodes[0].Addr = proxy.Addr()
			l := newRedlock(t, nodes, unguarded)
			joined(t, l, clients)
			acquires := acquireCalls(t)
			hold := func() *redistest.Held { return proxy.Hold(acquires) }

			var held *redistest.Held
			if tt.first {
				held = hold()
			}
			lease := acquire(t, l, locking.Options{}, "order:1")
			fence(t, lease)
			everywhere(t, clients[1:], "order:1")
			if !tt.first {
				everywhere(t, clients, "order:1")
				held = hold()
				takesAgain(t, lease, clients[0], held)
			}
			<-held.Caught
			if tt.again {
				await(t, "taken once more", func() bool {
					if err := lease.Renew(t.Context()); err != nil {
						t.Fatal(err)
					}
					return exists(t, clients[0], "order:1")
				})
			}
			release(t, lease)
			abandoned(t, clients[0], "order:1") // on a busy machine, Close would not wait so long for one node
			nowhere(t, clients, "order:1")
			held.Deliver()
			if exists(t, clients[0], "order:1") {
				t.Errorf("locked without a holder: %s", clients[0].Get(t.Context(), lockOf("order:1")).Val())
			}
		})
	}
}
