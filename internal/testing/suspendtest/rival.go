//go:build suspend

package suspendtest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/testing/childtest"
	"github.com/railtoken/railtoken/locking"
)

const (
	ttl = 3 * time.Second
	// spareTTL is that of the leases that are acquired after the suspension, and before: a backend that takes what is left
	// of the earlier one for fresh has nearly lost it.
	spareTTL  = 10 * time.Second
	suspended = spareTTL
	leases    = 8 // of each kind
	// rivalTime is how long the rival tries to get keys that the child has acquired after the suspension.
	rivalTime = 5 * time.Second
)

// rival is the side of the locks that goes on.
type rival struct {
	child  *childtest.Child
	locker locking.Locker
	held   []*locking.Lease
}

// Run suspends a child that calls Hold, and checks that no key has two holders, by a Locker that goes on.
func Run(t *testing.T, child *childtest.Child, locker locking.Locker) {
	t.Helper()
	r := &rival{child: child, locker: locker}
	renewed, held, cycled, gated, spare := names("renewed"), names("held"), names("cycled"), names("gated"), names("spare")
	for _, name := range spare { // all of them at the same time
		r.tell(t, "acquire", name, spareTTL.String())
	}
	for i := range spare {
		r.tell(t, "acquire", held[i], ttl.String())
		r.tell(t, "acquire", renewed[i], ttl.String())
		r.tell(t, "renew", renewed[i], ttl.String())
		r.tell(t, "cycle", cycled[i], ttl.String())
		r.tell(t, "gate", gated[i], ttl.String())
		r.tell(t, "queue", gated[i], ttl.String())
	}
	for _, name := range spare {
		r.tell(t, "release", name, ttl.String())
	}
	Suspend(t, child, suspended, func() {
		r.get(t, spareTTL, renewed, held, cycled, gated)
	})
	if n := 4 * leases; len(r.held) != n {
		t.Fatalf("%d of %d keys became free during the suspension", len(r.held), n)
	}
	r.alone(t, "after the suspension")
	for _, name := range append(renewed, held...) {
		if got := Ask(t, child, "ended", name, "3s"); got != "true" {
			t.Errorf("the context of the lost lease %s goes on", name)
		}
	}
	for _, name := range gated {
		Ask(t, child, "release", name, ttl.String()) // hands nothing off
	}
	for _, name := range spare {
		r.tell(t, "acquire", name, spareTTL.String())
	}
	r.get(t, rivalTime, spare)
	for round := range 5 {
		r.alone(t, fmt.Sprintf("in round %d", round))
		for i := range gated {
			if Ask(t, child, "trusted", gated[i]+"-next") == "true" {
				t.Errorf("the lease of %s was handed off, and has another holder", gated[i])
			}
		}
		<-time.After(50 * time.Millisecond)
	}
}

// names returns the names of some leases.
func names(kind string) []string {
	all := make([]string, leases)
	for i := range all {
		all[i] = fmt.Sprintf("%s-%d", kind, i)
	}
	return all
}

// tell has the child do what must succeed.
func (r *rival) tell(t *testing.T, command ...string) {
	t.Helper()
	if answer := Ask(t, r.child, command...); answer != done {
		t.Fatalf("%s: %s", strings.Join(command, " "), answer)
	}
}

// get acquires the keys that it can get within d.
func (r *rival) get(t *testing.T, d time.Duration, kinds ...[]string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	got := make(chan *locking.Lease)
	n := 0
	for _, kind := range kinds {
		for _, name := range kind {
			n++
			go func() {
				lease, _ := locking.Wait(ctx, r.locker, []string{name}, locking.Options{})
				got <- lease
			}()
		}
	}
	for range n {
		if lease := <-got; lease != nil {
			r.held = append(r.held, lease)
			t.Cleanup(func() { _ = lease.Release(context.Background()) })
		}
	}
}

// alone checks that the child trusts no lease of a key that the rival has.
func (r *rival) alone(t *testing.T, when string) {
	t.Helper()
	for _, lease := range r.held {
		for _, name := range lease.Keys() {
			if Ask(t, r.child, "trusted", name) == "true" && lease.Err() == nil {
				t.Errorf("%s: %s has two holders", when, name)
			}
		}
	}
}
