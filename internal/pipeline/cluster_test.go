package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/pipeline"
	"github.com/railtoken/railtoken/internal/rediswire"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// keysOn returns keys in different slots of node i of a cluster of that many nodes.
func keysOn(i, nodes, n int) (keys []string) {
	for k := 0; len(keys) < n; k++ {
		if key := strconv.Itoa(k); rediswire.Slot(key)*nodes/16384 == i {
			keys = append(keys, key)
		}
	}
	return keys
}

var set = pipeline.NewScript("return redis.call('SET', KEYS[1], ARGV[1])")

// cluster returns a cluster of three masters, and what makes calls to it through w.
func cluster(t *testing.T, w *wire, timeout time.Duration) (*redistest.Cluster, pipeline.Caller) {
	t.Helper()
	c := redistest.StartCluster(t, 3)
	client := c.Client(t, func(o *redis.ClusterOptions) { o.ContextTimeoutEnabled, o.MaxRedirects = true, 2 })
	client.AddHook(w)
	return c, pipeline.To(client, pipeline.Options{Leaders: 1, Timeout: timeout})
}

func TestCallsToTheSameMasterShareARoundTrip(t *testing.T) {
	t.Parallel()
	w := newWire(nil)
	c, calls := cluster(t, w, 10*time.Second)
	keys, others := keysOn(1, 3, 9), keysOn(2, 3, 1) // the others' master has a pipeline of its own
	push := appends()
	for _, key := range []string{keys[0], others[0]} {
		if _, err := calls.Run(t.Context(), pipeline.NewCall(nil, push, []string{key}, "first")); err != nil {
			t.Fatal(err)
		}
	}
	w.holds(true)
	var all sync.WaitGroup
	call := func(key string) {
		all.Go(func() {
			if _, err := calls.Run(t.Context(), pipeline.NewCall(nil, push, []string{key}, "of "+key)); err != nil {
				t.Errorf("%s: %v", key, err)
			}
		})
	}
	call(keys[0])
	next(t, w.began)
	before := len(w.sizes())
	for _, key := range keys[1:] {
		call(key)
	}
	call(others[0])
	next(t, w.began)
	for began := time.Now(); pipeline.QueuedFor(calls, keys[1]) < len(keys)-1; <-time.After(time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatalf("%d calls are queued, want %d", pipeline.QueuedFor(calls, keys[1]), len(keys)-1)
		}
	}
	w.holds(false)
	w.goOn <- struct{}{}
	w.goOn <- struct{}{}
	all.Wait()
	if got, want := w.sizes()[before:], []int{1, len(keys) - 1}; !slices.Equal(got, want) {
		t.Errorf("the round trips have %v calls, want %v", got, want)
	}
	client := c.Client(t)
	for _, key := range append(keys, others...) {
		if got := client.LRange(t.Context(), key, -1, -1).Val(); !slices.Equal(got, []string{"of " + key}) {
			t.Errorf("%s has %q", key, got)
		}
	}
}

// A slot has moved since the client last asked which master has it.
func TestACallFollowsItsSlot(t *testing.T) {
	t.Parallel()
	w := newWire(nil)
	c, calls := cluster(t, w, 10*time.Second)
	keys := keysOn(0, 3, 2)
	for round := range 3 {
		var all sync.WaitGroup
		for _, key := range keys {
			all.Go(func() {
				if _, err := calls.Run(t.Context(), pipeline.NewCall(nil, set, []string{key}, fmt.Sprint(round))); err != nil {
					t.Errorf("round %d, %s: %v", round, key, err)
				}
			})
		}
		all.Wait()
		for _, key := range keys {
			if got := c.Client(t).Get(t.Context(), key).Val(); got != fmt.Sprint(round) {
				t.Errorf("round %d: %s is %q", round, key, got)
			}
		}
		c.MoveSlot(t, rediswire.Slot(keys[0]), c.Nodes()[1+round%2])
	}
}

func TestAMasterThatIsAwayDelaysNoOther(t *testing.T) {
	t.Parallel()
	c, calls := cluster(t, newWire(nil), 2*time.Second)
	away, here := keysOn(0, 3, 1), keysOn(1, 3, 1)
	for _, keys := range [][]string{away, here} {
		if _, err := calls.Run(t.Context(), pipeline.NewCall(nil, set, keys, "first")); err != nil {
			t.Fatal(err)
		}
	}
	c.Nodes()[0].Pause()
	t.Cleanup(c.Nodes()[0].Resume)
	lost := make(chan error, 1)
	go func() {
		_, err := calls.Run(context.Background(), pipeline.NewCall(nil, set, away, "second"))
		lost <- err
	}()
	for n := range 100 {
		if _, err := calls.Run(t.Context(), pipeline.NewCall(nil, set, here, strconv.Itoa(n))); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case err := <-lost:
		t.Fatalf("the master that is away has answered: %v", err)
	default:
	}
	if err := redistest.Receive(t, lost, patience); err == nil || errors.Is(err, pipeline.ErrNotSent) {
		t.Errorf("the call to the master that is away: %v", err)
	}
}

// The nodes that the client knows accept connections and never answer, so it does not learn which master has which slots.
func TestACallToAnUnknownClusterEndsWithItsContext(t *testing.T) {
	t.Parallel()
	silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan net.Conn, 100)
	go func() {
		defer close(accepted)
		for {
			conn, err := silent.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{silent.Addr().String()}, ReadTimeout: time.Hour, Protocol: 2})
	t.Cleanup(func() {
		_ = silent.Close()
		for conn := range accepted {
			_ = conn.Close()
		}
		_ = client.Close()
	})
	calls := pipeline.To(client, pipeline.Options{Leaders: 1, Timeout: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := calls.Run(ctx, pipeline.NewCall(nil, set, []string{"key"}, "value"))
		ended <- err
	}()
	conn := next(t, accepted)
	defer func() { _ = conn.Close() }()
	cancel()
	if err := next(t, ended); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
