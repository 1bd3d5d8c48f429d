package attach_test

import (
	"context"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
)

// far is a connection whose calls take a round trip longer.
type far struct {
	net.Conn
	by time.Duration
}

func (c far) Write(b []byte) (int, error) {
	<-time.After(c.by)
	return c.Conn.Write(b)
}

// dialFar returns a dialer of connections that are so far away.
func dialFar(by time.Duration) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil || by == 0 {
			return conn, err
		}
		return far{conn, by}, nil
	}
}

// The time from the enqueue of a successor until the holder is told, and from the return of the holder until the successor starts.
func BenchmarkSupersede(b *testing.B) {
	for name, by := range map[string]time.Duration{"near": 0, "far=2ms": 2 * time.Millisecond} {
		b.Run(name, func(b *testing.B) {
			client := redis.NewClient(&redis.Options{
				Addr: redistest.Start(b).Addr(), MaxRetries: -1,
				Dialer: dialFar(by),
			})
			b.Cleanup(func() { _ = client.Close() })
			parked := make(chan struct{}, 10)
			a, err := attach.New(client, asynq.Config{Concurrency: 10, LogLevel: asynq.FatalLevel}, attach.Options{
				Observer: func(_ context.Context, e middleware.Event) {
					if e.Kind == middleware.Parked {
						parked <- struct{}{}
					}
				},
			})
			if err != nil {
				b.Fatal(err)
			}
			lock, err := a.LockWith(attach.LockOptions{
				Key: ofOrder, Strategy: middleware.Supersede{}, Group: "orders", OnSuperseded: middleware.Discard,
			})
			if err != nil {
				b.Fatal(err)
			}
			type moment struct {
				kind string
				at   time.Time
			}
			moments := make(chan moment, 10)
			server := asynq.NewServerFromRedisClient(a.Client(), a.Config())
			if err := server.Start(lock(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
				moments <- moment{"begins", time.Now()}
				if task.Type() == "cancel" {
					return nil
				}
				<-ctx.Done()
				moments <- moment{"told", time.Now()}
				<-parked
				moments <- moment{"returns", time.Now()}
				return ctx.Err()
			}))); err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() {
				a.Stop()
				server.Shutdown()
				_ = a.Close()
			})
			next := func(kind string) time.Time {
				select {
				case m := <-moments:
					if m.kind != kind {
						b.Fatalf("%s, want %s", m.kind, kind)
					}
					return m.at
				case <-time.After(limit):
					b.Fatalf("nothing %s", kind)
				}
				return time.Time{}
			}
			put := func(kind string) time.Time {
				at := time.Now()
				if _, err := a.Producer(nil).EnqueueContext(b.Context(), asynq.NewTask(kind, nil), attach.Keys(theOrder)); err != nil {
					b.Fatal(err)
				}
				return at
			}
			var told, starts []time.Duration
			for b.Loop() {
				put("allocate")
				next("begins")
				at := put("cancel")
				told = append(told, next("told").Sub(at))
				returned := next("returns")
				starts = append(starts, next("begins").Sub(returned))
			}
			for name, all := range map[string][]time.Duration{"told": told, "starts": starts} {
				slices.Sort(all)
				b.ReportMetric(all[len(all)/2].Seconds()*1000, name+"-p50-ms")
				b.ReportMetric(all[len(all)*95/100].Seconds()*1000, name+"-p95-ms")
			}
		})
	}
}
