package interop_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// backend is one way to lock.
type backend struct {
	name  string
	nodes int // how many independent servers it is for
	// open returns a new locker, as another process would have it, that is closed with the test.
	open func(t *testing.T, servers []*redistest.Server, keyName func(string) string) locking.Locker
}

// backends are those under test. Other files add theirs.
var backends = []backend{{"single", 1, openSingle}}

func openSingle(t *testing.T, servers []*redistest.Server, keyName func(string) string) locking.Locker {
	client := servers[0].Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	l, err := locking.NewSingle(client, locking.SingleOptions{RedisKey: keyName})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// start runs n servers that know nothing of each other.
func start(t *testing.T, n int) []*redistest.Server {
	t.Helper()
	servers := make([]*redistest.Server, n)
	for i := range servers {
		servers[i] = redistest.Start(t)
	}
	return servers
}

// forEachBackend runs a test over every backend, each on servers of its own.
func forEachBackend(t *testing.T, test func(t *testing.T, b backend, servers []*redistest.Server)) {
	t.Helper()
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			test(t, b, start(t, b.nodes))
		})
	}
}
