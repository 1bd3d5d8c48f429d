//go:build suspend

package suspendtest

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/railtoken/railtoken/locking"
)

// holder is the side of the locks whose machine is suspended. It has leases by their names, which are also their keys.
type holder struct {
	locker, gate locking.Locker

	mu     sync.Mutex
	leases map[string]*locking.Lease
}

// Hold has a child hold locks of a Locker, alone and behind a Gate.
func Hold(locker locking.Locker) {
	h := &holder{
		locker: locker, gate: locking.NewGate(locker, locking.GateOptions{}), leases: map[string]*locking.Lease{},
	}
	Serve(h.carryOut)
}

// carryOut carries out a command. The second word is the name of a lease, the last one its TTL, or how long to wait.
func (h *holder) carryOut(command []string) string {
	ctx, name := context.Background(), command[1]
	ttl, err := time.ParseDuration(command[len(command)-1])
	opts := locking.Options{TTL: ttl}
	switch command[0] {
	case "acquire":
		err = h.acquire(ctx, h.locker, name, opts)
	case "gate":
		err = h.acquire(ctx, h.gate, name, opts)
	case "queue": // behind a lease of the same key, in the Gate
		go func() {
			if lease, err := locking.Wait(ctx, h.gate, []string{name}, opts); err == nil {
				h.keep(name+"-next", lease)
			}
		}()
	case "release":
		err = h.lease(name).Release(ctx)
	case "renew": // again and again
		go func() {
			for h.lease(name).Err() == nil {
				_ = h.lease(name).Renew(ctx)
			}
		}()
	case "cycle": // through acquisitions and releases
		go func() {
			for {
				if h.acquire(ctx, h.locker, name, opts) == nil {
					_ = h.lease(name).Release(ctx)
				}
			}
		}()
	case "trusted":
		lease := h.lease(name)
		return strconv.FormatBool(lease != nil && lease.Err() == nil)
	case "ended": // within so long
		select {
		case <-h.lease(name).Context(ctx).Done():
			return "true"
		case <-time.After(ttl):
			return "false"
		}
	}
	if err != nil {
		return err.Error()
	}
	return done
}

func (h *holder) acquire(ctx context.Context, l locking.Locker, name string, opts locking.Options) error {
	lease, err := l.Acquire(ctx, []string{name}, opts)
	if err == nil {
		h.keep(name, lease)
	}
	return err
}

func (h *holder) keep(name string, lease *locking.Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leases[name] = lease
}

func (h *holder) lease(name string) *locking.Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.leases[name]
}
