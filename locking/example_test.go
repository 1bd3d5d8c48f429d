package locking_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/locking"
)

// Take a key, give its fencing token along with every write, and give the key back. The Redis of this example is
// embedded, so that it runs anywhere; yours is the address of a server.
func Example() {
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

	// The database refuses every write whose token is smaller than one it has seen.
	var seen int64
	write := func(what string, token int64) {
		if token < seen {
			fmt.Println("refused:", what)
			return
		}
		seen = token
		fmt.Println("written:", what)
	}

	ctx := context.Background()
	var tokens []int64
	for _, step := range []string{"audit", "split"} {
		lease, err := locker.Acquire(ctx, []string{"order:1042"}, locking.Options{})
		if err != nil {
			log.Fatal(err)
		}
		token, err := lease.Fence(ctx)
		if err != nil {
			log.Fatal(err)
		}
		write(step, token)
		tokens = append(tokens, token)
		if err := lease.Release(ctx); err != nil {
			log.Fatal(err)
		}
	}
	write("audit, by a process that had been paused", tokens[0])
	// Output:
	// written: audit
	// written: split
	// refused: audit, by a process that had been paused
}

// A refusal says who holds the key, and for how long at most unless it is renewed.
func ExampleHeldError() {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer client.Close()
	locker, err := locking.NewSingle(client, locking.SingleOptions{Label: "worker-7"})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	ctx := context.Background()
	audit, err := locker.Acquire(ctx, []string{"order:1042"},
		locking.Options{TTL: 20 * time.Second, Label: "worker-7/order:audit"})
	if err != nil {
		log.Fatal(err)
	}
	defer audit.Release(ctx)

	_, err = locker.Acquire(ctx, []string{"order:1042", "order:1043"}, locking.Options{})
	if held, ok := errors.AsType[*locking.HeldError](err); ok {
		fmt.Println("the key", held.Key)
		fmt.Println("is held by", held.Holder.Label)
		fmt.Println("for another", held.Holder.Remaining.Round(10*time.Second))
	}
	fmt.Println("nothing was taken:", errors.Is(err, locking.ErrHeld))
	// Output:
	// the key order:1042
	// is held by worker-7/order:audit
	// for another 20s
	// nothing was taken: true
}

// Work under the lease's context: it ends when the lease can no longer be trusted, and its cause says why.
func ExampleLease_Context() {
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

	lease, err := locker.Acquire(context.Background(), []string{"order:1042"}, locking.Options{TTL: time.Second})
	if err != nil {
		log.Fatal(err)
	}
	ctx := lease.Context(context.Background())

	server.FlushAll() // the server loses its data: the next renewal notices

	select {
	case <-ctx.Done():
		fmt.Println(ctx.Err())
		fmt.Println(context.Cause(ctx))
	case <-time.After(10 * time.Second):
		fmt.Println("the work is done")
	}
	fmt.Println("lost:", errors.Is(lease.Release(context.Background()), locking.ErrLost))
	// Output:
	// context canceled
	// locking: lease of ["order:1042"] is lost: the key is no longer this holder's on the server
	// lost: true
}

// Several keys are taken all or none. Each has a fencing token of its own.
func ExampleLease_FenceOf() {
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
	lease, err := locker.Acquire(ctx, []string{"warehouse:7", "order:1042"}, locking.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(ctx)
	for _, key := range lease.Keys() {
		token, err := lease.FenceOf(ctx, key)
		fmt.Println(key, token > 0, err)
	}
	// Output:
	// order:1042 true <nil>
	// warehouse:7 true <nil>
}

// Wait for a key: watch its release, and try again now and then all the same, because a notice may be lost.
func ExampleSingle_Watch() {
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
	holder, err := locker.Acquire(ctx, keys, locking.Options{})
	if err != nil {
		log.Fatal(err)
	}
	time.AfterFunc(50*time.Millisecond, func() { _ = holder.Release(ctx) })

	released, stop, err := locker.Watch(ctx, keys)
	if err != nil {
		log.Fatal(err)
	}
	defer stop()
	for {
		lease, err := locker.Acquire(ctx, keys, locking.Options{Notify: time.Minute})
		if err == nil {
			fmt.Println("acquired after the release")
			_ = lease.Release(ctx)
			return
		}
		if !errors.Is(err, locking.ErrHeld) {
			log.Fatal(err)
		}
		select {
		case <-released:
		case <-time.After(time.Second):
		}
	}
	// Output:
	// acquired after the release
}
