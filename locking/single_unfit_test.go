package locking_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

func TestASingleRefusesARedisThatEvicts(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	l, err := locking.NewSingle(client, locking.SingleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	allowed, err := locking.NewSingle(client, locking.SingleOptions{AllowEviction: true})
	if err != nil {
		t.Fatal(err)
	}
	defer allowed.Close()
	for name, value := range map[string]string{"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"} {
		if err := client.ConfigSet(t.Context(), name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		_, err = l.Acquire(t.Context(), []string{"k"}, locking.Options{})
		if !errors.Is(err, locking.ErrUnavailable) || !strings.Contains(err.Error(), "maxmemory-policy noeviction") ||
			!strings.Contains(err.Error(), "AllowEviction") {
			t.Fatalf("the error is %v", err)
		}
	}
	if n := client.Exists(t.Context(), "railtoken:lock:{k}", "railtoken:lock:{k}:fence").Val(); n != 0 {
		t.Error("the refused attempt was made")
	}
	release(t, acquire(t, allowed, locking.Options{}, "k"))
	if err := client.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err(); err != nil {
		t.Fatal(err)
	}
	release(t, eventually(t, l, "k"))
}

func TestASingleAcceptsARedisWithoutInfo(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t, server.User(t, "blind", "~*", "&*", "+@all", "-info"))
	l, err := locking.NewSingle(client, locking.SingleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	release(t, acquire(t, l, locking.Options{}, "k"))
}

func TestEvictingMastersOfAClusterAreRefused(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	client := cluster.Client(t)
	l, err := locking.NewSingle(client, locking.SingleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	server := cluster.Nodes()[0].Client(t)
	for name, value := range map[string]string{"maxmemory": "100mb", "maxmemory-policy": "volatile-ttl"} {
		if err := server.ConfigSet(t.Context(), name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	if _, err := l.Acquire(t.Context(), []string{"k"}, locking.Options{}); !errors.Is(err, locking.ErrUnavailable) ||
		!strings.Contains(err.Error(), "volatile-ttl") {
		t.Fatalf("after %v the error is %v", time.Since(began), err)
	}
}
