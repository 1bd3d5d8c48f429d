//go:build suspend

package locking_test

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/childtest"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/internal/testing/suspendtest"
	"github.com/railtoken/railtoken/locking"
)

// suspendedOn names the servers of a child whose machine is suspended.
const suspendedOn = "LOCKING_SUSPENDED_ON"

func init() {
	addrs := os.Getenv(suspendedOn)
	if addrs == "" {
		return
	}
	l, err := onServers(strings.Split(addrs, ","))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	suspendtest.Hold(l)
	os.Exit(0)
}

// onServers returns a Locker on one server, or a Redlock on several.
func onServers(addrs []string) (locking.Locker, error) {
	if len(addrs) == 1 {
		return locking.NewSingle(redis.NewClient(&redis.Options{Addr: addrs[0]}), locking.SingleOptions{})
	}
	nodes := make([]*redis.Options, len(addrs))
	for i, addr := range addrs {
		nodes[i] = &redis.Options{Addr: addr}
	}
	return locking.NewRedlock(nodes, locking.RedlockOptions{Guard: locking.GuardOff})
}

func TestASuspendedHolderOnRedisTrustsNoLease(t *testing.T) {
	t.Parallel()
	for name, n := range map[string]int{"Single": 1, "Redlock": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addrs := make([]string, n)
			for i := range addrs {
				addrs[i] = redistest.Start(t).Addr()
			}
			rival, err := onServers(addrs)
			if err != nil {
				t.Fatal(err)
			}
			if closer, ok := rival.(io.Closer); ok {
				t.Cleanup(func() { _ = closer.Close() })
			}
			suspendtest.Run(t, childtest.Start(t, suspendedOn+"="+strings.Join(addrs, ",")), rival)
		})
	}
}
