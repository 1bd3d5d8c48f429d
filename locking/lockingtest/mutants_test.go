package lockingtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/locking/backend"
	"github.com/railtoken/railtoken/locking/lockingtest"
)

// mutants are faulty backends, and the test of the suite that each must fail.
var mutants = map[string]struct {
	fails string
	fault faults
}{
	"none": {},
	"Renew does not check the owner": {
		"RenewReportsALostLock", faults{renew: func(g *grant, ttl time.Duration) error {
			g.extend(ttl)
			return nil
		}},
	},
	"Renew revives its own expired lock": {
		"RenewReportsALostLock", faults{renew: func(g *grant, ttl time.Duration) error {
			for _, key := range g.keys {
				if !g.owns(key) {
					return g.lost(key)
				}
			}
			g.extend(ttl)
			return nil
		}},
	},
	"Renew takes a deleted lock again": {
		"RenewReportsALostLock", faults{deletes: true, renew: func(g *grant, ttl time.Duration) error {
			for _, key := range g.keys {
				if g.in.locks[key] != nil && !g.owns(key) {
					return g.lost(key)
				}
				g.in.locks[key] = &lock{grant: g, end: time.Now().Add(ttl)}
			}
			return nil
		}},
	},
	"Renew takes the lock from the next holder": {
		"RenewLeavesTheNextHolderAlone", faults{renew: func(g *grant, _ time.Duration) error {
			for _, key := range g.keys {
				g.in.locks[key].grant = g
			}
			return nil
		}},
	},
	"Renew checks the first key only": {
		"RenewReportsAPartlyLostLock", faults{renew: func(g *grant, ttl time.Duration) error {
			if first := g.keys[0]; !g.owns(first) || !time.Now().Before(g.in.locks[first].end) {
				return g.lost(first)
			}
			g.extend(ttl)
			return nil
		}},
	},
	"Renew reports a loss as another error": {
		"RenewReportsALostLock", faults{renew: func(g *grant, ttl time.Duration) error {
			for _, key := range g.keys {
				if !g.owns(key) || !time.Now().Before(g.in.locks[key].end) {
					return errors.New("not found")
				}
			}
			g.extend(ttl)
			return nil
		}},
	},
	"Release of a lost lock returns nil": {
		"ReleaseReportsALostLock", faults{release: func(g *grant) error {
			for _, key := range g.keys {
				if g.owns(key) {
					delete(g.in.locks, key)
				}
			}
			return nil
		}},
	},
	"Release looks at the present owner only": {
		"ReleaseReportsALockThatAnotherHolderHad", faults{release: func(g *grant) (err error) {
			for _, key := range g.keys {
				switch {
				case g.owns(key):
					delete(g.in.locks, key)
				case g.in.locks[key] != nil:
					err = g.lost(key)
				}
			}
			return err
		}},
	},
	"Release of a partly lost lock keeps the other keys": {
		"ReleaseFreesWhatIsLeft", faults{release: func(g *grant) error {
			for _, key := range g.keys {
				if !g.owns(key) {
					return g.lost(key)
				}
			}
			for _, key := range g.keys {
				delete(g.in.locks, key)
			}
			return nil
		}},
	},
	"Block is larger than what is reserved":  {"TokensGrowWhileALeaseIsHandedOff", faults{onlyOne: true}},
	"Acquire ignores the end of its context": {"AFailedAttemptLeavesNothing", faults{deaf: true}},
	"A subscription ends with the holder":    {"ASubscriptionOutlivesTheHolder", faults{forgets: true}},
	"locks expire an hour late":              {"TokensGrowPastAnExpiry", faults{late: time.Hour}},
	"locks that are lost are deleted":        {"", faults{deletes: true}},
	"a loss is no LostError":                 {"", faults{bare: true}},
	"Block is ignored":                       {"", faults{onlyOne: true, skips: "TokensGrowWhileALeaseIsHandedOff"}},
}

// faults changes what a memory does.
type faults struct {
	renew   func(g *grant, ttl time.Duration) error // called with the mutex held
	release func(g *grant) error                    // called with the mutex held
	deletes bool                                    // a lost lock is deleted, rather than its TTL ended
	onlyOne bool                                    // one token is reserved, and Block returns more, unless skips is set
	skips   string                                  // the test that is skipped besides that of watches
	bare    bool                                    // a loss is an error that matches ErrLost, and no more
	deaf    bool
	forgets bool // who takes a key ends the subscriptions to it
	late    time.Duration
}

// faulty is a memory with faults.
type faulty struct {
	*memory
	faults faults
}

// Acquire makes one attempt.
func (f *faulty) Acquire(ctx context.Context, r backend.Request) (backend.Grant, error) {
	if f.faults.deaf {
		ctx = context.WithoutCancel(ctx)
	}
	r.TTL += f.faults.late
	block := r.Block
	if f.faults.onlyOne {
		r.Block = 1
	}
	if f.faults.skips != "" {
		block = 1
	}
	g, err := f.memory.Acquire(ctx, r)
	if err != nil {
		return nil, err
	}
	if f.faults.forgets {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, key := range r.Keys {
			delete(f.notify, key)
		}
	}
	return &faultyGrant{g.(*grant), f.faults, block}, nil
}

// lose ends the TTL of a lock, or deletes it.
func (f *faulty) lose(key string) {
	if !f.faults.deletes {
		f.memory.lose(key)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.locks, key)
}

// faultyGrant is a grant of a faulty memory.
type faultyGrant struct {
	*grant
	faults faults
	block  int
}

// Block returns how many tokens the request was for.
func (g *faultyGrant) Block() int { return g.block }

// Renew makes the keys last for ttl from now, or fails to.
func (g *faultyGrant) Renew(ctx context.Context, ttl time.Duration) error {
	if g.faults.renew == nil {
		return g.faults.bared(g.grant.Renew(ctx, ttl+g.faults.late))
	}
	g.in.mu.Lock()
	defer g.in.mu.Unlock()
	return g.faults.renew(g.grant, ttl)
}

// Release gives up the keys, or fails to.
func (g *faultyGrant) Release(ctx context.Context) (bool, error) {
	if g.faults.release == nil {
		notify, err := g.grant.Release(ctx)
		return notify, g.faults.bared(err)
	}
	g.in.mu.Lock()
	defer g.in.mu.Unlock()
	return true, g.faults.release(g.grant)
}

// bared returns an error of a grant, as this backend reports it.
func (f faults) bared(err error) error {
	if f.bare && errors.Is(err, locking.ErrLost) {
		return fmt.Errorf("memory: %w", locking.ErrLost)
	}
	return err
}

// mutantVariable names the mutant on which a process of its own runs the suite.
const mutantVariable = "LOCKINGTEST_MUTANT"

func TestTheSuiteFailsEveryMutant(t *testing.T) {
	t.Parallel()
	if name := os.Getenv(mutantVariable); name != "" {
		runOnMutant(t, mutants[name].fault)
		return
	}
	for name, mutant := range mutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestTheSuiteFailsEveryMutant$")
			cmd.Env = append(os.Environ(), mutantVariable+"="+name)
			output, err := cmd.CombinedOutput()
			if failed := err != nil; failed != (mutant.fails != "") {
				t.Errorf("the suite ended with %v:\n%s", err, output)
			}
			if mutant.fails != "" && !strings.Contains(string(output), "FAIL: TestTheSuiteFailsEveryMutant/"+mutant.fails) {
				t.Errorf("%s did not fail:\n%s", mutant.fails, output)
			}
			if strings.Contains(string(output), hangs) {
				t.Errorf("a wait has no deadline:\n%s", output)
			}
		})
	}
}

// hangs is in the output when a test takes much longer than the limit of the suite.
const hangs = "took more than a minute"

// runOnMutant runs the suite in virtual time on a faulty memory.
func runOnMutant(t *testing.T, f faults) {
	t.Helper()
	var stores sync.Map
	storeOf := func(t *testing.T) *faulty {
		m, _ := stores.LoadOrStore(t, &faulty{newMemory(), f})
		return m.(*faulty)
	}
	lockingtest.Run(t, lockingtest.Harness{
		Run: func(t *testing.T, test func(t *testing.T)) {
			t.Helper()
			t.Cleanup(func() {
				_, test, _ := strings.Cut(t.Name(), "/")
				if want := test == "AReleaseNotifiesWatches" || test == f.skips; t.Skipped() != want {
					t.Errorf("skipped: %t, want %t", t.Skipped(), want)
				}
			})
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				t.Cleanup(func() {
					if took := time.Since(began); took > time.Minute {
						t.Errorf("%s: %v", hangs, took)
					}
				})
				test(t)
			})
		},
		New:  func(t *testing.T) locking.Locker { return locking.New(storeOf(t)) },
		Lose: func(t *testing.T, key string) { storeOf(t).lose(key) },
	})
}
