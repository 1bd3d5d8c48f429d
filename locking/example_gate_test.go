package locking_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/locking"
)

// The callers of one process stand in line at a gate: the servers are asked once for all of them, and each has a
// fencing token of its own.
func ExampleNewGate() {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer client.Close()
	single, err := locking.NewSingle(client, locking.SingleOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer single.Close()
	gate := locking.NewGate(single, locking.GateOptions{}) // one for the whole process

	var wg sync.WaitGroup
	sum, last := 0, int64(0)
	for range 10 {
		wg.Go(func() {
			err := locking.Do(context.Background(), gate, []string{"order:1042"}, locking.Options{},
				func(ctx context.Context, lease *locking.Lease) error {
					token, err := lease.Fence(ctx)
					if err != nil {
						return err
					}
					if token > last {
						sum, last = sum+1, token // one at a time
					}
					return nil
				})
			if err != nil {
				log.Fatal(err)
			}
		})
	}
	wg.Wait()
	fmt.Println(sum, "holders, each with a larger token than the one before")
	// Output: 10 holders, each with a larger token than the one before
}

// A caller that does not wait is told at once who holds the key, without a call to the servers.
func ExampleGate_Acquire() {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer client.Close()
	single, err := locking.NewSingle(client, locking.SingleOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer single.Close()
	gate := locking.NewGate(single, locking.GateOptions{})

	ctx := context.Background()
	lease, err := gate.Acquire(ctx, []string{"order:1042"}, locking.Options{Label: "order:audit"})
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(ctx)

	_, err = gate.Acquire(ctx, []string{"order:1042"}, locking.Options{Label: "order:split"})
	if held, ok := errors.AsType[*locking.HeldError](err); ok {
		fmt.Println(held.Key, "is held by", held.Holder.Label)
	}
	// Output: order:1042 is held by order:audit
}

// Run a function while holding keys. Its context ends when the lease is lost, and the keys are released when it
// returns.
func ExampleDo() {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer client.Close()
	locker, err := locking.NewSingle(client, locking.SingleOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	ctx := context.Background()
	err = locking.Do(ctx, locker, []string{"order:1042"}, locking.Options{},
		func(ctx context.Context, lease *locking.Lease) error {
			token, err := lease.Fence(ctx)
			if err != nil {
				return err
			}
			fmt.Println("working on", lease.Keys(), "with a token:", token > 0)
			return nil
		})
	fmt.Println("error:", err)

	err = locking.Do(ctx, locker, []string{"order:1042"}, locking.Options{TTL: time.Second},
		func(ctx context.Context, _ *locking.Lease) error {
			server.FlushAll() // the server loses its data
			<-ctx.Done()
			return nil
		})
	fmt.Println("lost:", errors.Is(err, locking.ErrLost))
	// Output:
	// working on [order:1042] with a token: true
	// error: <nil>
	// lost: true
}

// Wait for a key as long as a context lasts.
func ExampleWait() {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer client.Close()
	locker, err := locking.NewSingle(client, locking.SingleOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	ctx, keys := context.Background(), []string{"order:1042"}
	holder, err := locker.Acquire(ctx, keys, locking.Options{Label: "order:audit"})
	if err != nil {
		log.Fatal(err)
	}

	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	_, err = locking.Wait(short, locker, keys, locking.Options{})
	if held, ok := errors.AsType[*locking.HeldError](err); ok && errors.Is(err, context.DeadlineExceeded) {
		fmt.Println("gave up on", held.Key, "of", held.Holder.Label)
	}

	time.AfterFunc(50*time.Millisecond, func() { _ = holder.Release(ctx) })
	lease, err := locking.Wait(ctx, locker, keys, locking.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(ctx)
	fmt.Println("acquired after the release")
	// Output:
	// gave up on order:1042 of order:audit
	// acquired after the release
}

// A key that is held on more than half of several independent servers outlives the loss of the others.
func ExampleNewRedlock() {
	var nodes []*redis.Options
	servers := make([]*miniredis.Miniredis, 3)
	for i := range servers {
		servers[i] = miniredis.NewMiniRedis()
		if err := servers[i].Start(); err != nil {
			log.Fatal(err)
		}
		nodes = append(nodes, &redis.Options{Addr: servers[i].Addr()})
	}
	defer servers[1].Close()
	defer servers[2].Close()
	locker, err := locking.NewRedlock(nodes, locking.RedlockOptions{
		Guard:       locking.GuardOff, // these servers have just been started, and would not vote for the first 55 s
		NodeTimeout: time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	ctx := context.Background()
	lease, err := locker.Acquire(ctx, []string{"order:1042"}, locking.Options{})
	if err != nil {
		log.Fatal(err)
	}
	servers[0].Close()
	_, err = locker.Acquire(ctx, []string{"order:1042"}, locking.Options{})
	fmt.Println("still held with one server down:", errors.Is(err, locking.ErrHeld))

	before, err := lease.Fence(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_ = lease.Release(ctx)
	err = locking.Do(ctx, locker, []string{"order:1042"}, locking.Options{},
		func(ctx context.Context, lease *locking.Lease) error {
			token, err := lease.Fence(ctx)
			fmt.Println("the next holder has a larger token:", token > before)
			return err
		})
	fmt.Println("error:", err)
	// Output:
	// still held with one server down: true
	// the next holder has a larger token: true
	// error: <nil>
}
