package pipeline_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/pipeline"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// BenchmarkCalls compares ways to make the same script calls: combined by a node, by the client's own pipelining, and
// each for itself. A pair is two calls in a row.
//
//	go test -run '^$' -bench Calls -count 10 ./internal/pipeline
func BenchmarkCalls(b *testing.B) {
	script := pipeline.NewScript(`return redis.call('SET', KEYS[1], ARGV[1], 'PX', 30000)`)
	plain := redis.NewScript(`return redis.call('SET', KEYS[1], ARGV[1], 'PX', 30000)`)
	for _, bench := range []struct {
		name string
		make func(b *testing.B, client *redis.Client) func(ctx context.Context, key string) error
	}{
		{"alone", func(_ *testing.B, client *redis.Client) func(context.Context, string) error {
			return func(ctx context.Context, key string) error {
				return plain.EvalSha(ctx, client, []string{key}, "1").Err()
			}
		}},
		{"combined", func(_ *testing.B, client *redis.Client) func(context.Context, string) error {
			n := pipeline.New(client, pipeline.Options{Leaders: 3, Timeout: time.Second})
			return func(ctx context.Context, key string) error {
				_, err := n.Run(ctx, pipeline.NewCall(nil, script, []string{key}, "1"))
				return err
			}
		}},
		{"autopipelined", func(b *testing.B, client *redis.Client) func(context.Context, string) error {
			ap, err := client.AutoPipeline()
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = ap.Close() })
			return func(ctx context.Context,
				key string,
			) error {
				return plain.EvalSha(ctx, ap, []string{key}, "1").Err()
			}
		}},
	} {
		for _, callers := range []int{1, 128} {
			b.Run(bench.name+"/"+strconv.Itoa(callers), func(b *testing.B) {
				client := redistest.Start(b).Client(b, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
				if err := plain.Load(b.Context(), client).Err(); err != nil {
					b.Fatal(err)
				}
				call := bench.make(b, client)
				var workers atomic.Int64
				work := func(next func() bool) {
					key := "key:" + strconv.FormatInt(workers.Add(1), 10)
					for next() {
						for range 2 {
							if err := call(b.Context(), key); err != nil {
								b.Error(err)
								return
							}
						}
					}
				}
				b.ReportAllocs()
				if callers == 1 {
					work(b.Loop)
					return
				}
				b.SetParallelism(callers / 2)
				b.RunParallel(func(pb *testing.PB) { work(pb.Next) })
			})
		}
	}
}
