package locking_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/locking/backend"
)

func TestABackendHasItsNameBehindAnything(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	single, err := locking.NewSingle(client, locking.SingleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer single.Close()
	for want, l := range map[string]locking.Locker{
		"redis": struct{ *locking.Gate }{locking.NewGate(single, locking.GateOptions{})}, "redlock": &locking.Redlock{},
		"locking_test": locking.NewGate(locking.New(ownBackend{}), locking.GateOptions{}),
	} {
		if got := locks.Backend(l); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// ownBackend is a backend of a program's own.
type ownBackend struct{ backend.Backend }
