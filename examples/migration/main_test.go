package main

import (
	"errors"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/locking"
)

// Workers of both versions run side by side during a roll-out.
func TestBothVersionsExcludeEachOther(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	locks, err := attached(rdb, asynq.Config{LogLevel: asynq.FatalLevel}, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close() })

	// The version before has the order.
	if !rdb.SetNX(t.Context(), "lock:1042", "a task", time.Minute).Val() {
		t.Fatal("no lock")
	}
	if _, err := locks.Locker().Acquire(t.Context(), []string{"1042"}, locking.Options{}); !errors.Is(err, locking.ErrHeld) {
		t.Errorf("beside the version before: %v", err)
	}
	// This version has another one.
	lease, err := locks.Locker().Acquire(t.Context(), []string{"1043"}, locking.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if rdb.SetNX(t.Context(), "lock:1043", "a task", time.Minute).Val() {
		t.Error("the version before takes the lock of this one")
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestUniqueAndLocksGoTogether(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	client := asynq.NewClientFromRedisClient(rdb)
	for range 2 {
		if err := enqueue(t.Context(), client, order{"1042"}); err != nil {
			t.Fatal(err)
		}
	}
	// One refresh, which a second would only repeat, and both allocations.
	if n := rdb.LLen(t.Context(), "asynq:{default}:pending").Val(); n != 3 {
		t.Errorf("%d tasks are pending, want 3", n)
	}
}
