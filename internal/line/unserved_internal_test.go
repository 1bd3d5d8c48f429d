package line

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// unread has so many reads of what asynq says of a server fail.
type unread struct{ left atomic.Int64 }

func (*unread) DialHook(next redis.DialHook) redis.DialHook { return next }

func (u *unread) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "get" && u.left.Add(-1) >= 0 {
			err := errors.New("the server does not answer")
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

func (*unread) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// asynq's list of servers leaves out those that it could not read, without an error.
func TestAServerThatWasNotReadIsNotGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Virtual(t)
		tasks := asynq.NewClientFromRedisClient(client)
		queue, err := New(client, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = queue.Close() }()
		for _, name := range []string{"one", "two", "nobody's"} {
			if _, err := tasks.Enqueue(asynq.NewTask("test", nil), asynq.Queue(name),
				asynq.ProcessIn(time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		var servers []*asynq.Server
		defer func() {
			for _, server := range servers {
				server.Shutdown()
			}
		}()
		for _, name := range []string{"one", "two"} {
			server := asynq.NewServerFromRedisClient(client,
				asynq.Config{Concurrency: 1, Queues: map[string]int{name: 1}, LogLevel: asynq.FatalLevel})
			if err := server.Start(asynq.NotFoundHandler()); err != nil {
				t.Fatal(err)
			}
			servers = append(servers, server)
		}
		time.Sleep(time.Second)
		u := &unread{}
		client.AddHook(u)
		for _, look := range []struct {
			unread int64
			want   []string
			// the last one need not read them again
		}{{1, nil}, {2, nil}, {0, []string{"nobody's"}}, {1, []string{"nobody's"}}} {
			u.left.Store(look.unread)
			queue.lookForUnserved(t.Context())
			if got := queue.unserved.queues; !slices.Equal(got, look.want) {
				t.Errorf("while %d servers cannot be read, these queues are without one: %q; want %q", look.unread, got,
					look.want)
			}
			time.Sleep(2 * unservedFresh)
		}
	})
}

func TestAQueueStarvesOnlyBelowABusyOne(t *testing.T) {
	t.Parallel()
	strict := &asynq.ServerInfo{StrictPriority: true, Queues: map[string]int{"high": 3, "low": 1}}
	for name, tt := range map[string]struct {
		pending, paused string
		servers         []*asynq.ServerInfo
		want            []string
	}{
		"below a busy one":     {"high", "", []*asynq.ServerInfo{strict, strict}, []string{"low"}},
		"itself busy":          {"low", "", []*asynq.ServerInfo{strict}, nil},
		"below a paused one":   {"high", "high", []*asynq.ServerInfo{strict}, nil},
		"by weight elsewhere":  {"high", "", []*asynq.ServerInfo{strict, {Queues: map[string]int{"high": 3, "low": 1}}}, nil},
		"the only one of one":  {"high", "", []*asynq.ServerInfo{strict, {StrictPriority: true, Queues: map[string]int{"low": 1}}}, nil},
		"of the same priority": {"high", "", []*asynq.ServerInfo{{StrictPriority: true, Queues: map[string]int{"high": 1, "low": 1}}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, client := redistest.Virtual(t)
				engine, err := New(client, Options{})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = engine.Close() }()
				_, err = client.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
					pipe.SAdd(t.Context(), "asynq:queues", "high", "low")
					pipe.LPush(t.Context(), "asynq:{"+tt.pending+"}:pending", "task")
					pipe.Set(t.Context(), "asynq:{"+tt.paused+"}:paused", 1, 0)
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				s := unservedQueues{servers: []string{}, working: tt.servers}
				unserved, starved, err := engine.findUnserved(t.Context(), &s)
				if err != nil || len(unserved) > 0 || !slices.Equal(starved, tt.want) {
					t.Errorf("unserved are %q, starved %q, %v; want %q", unserved, starved, err, tt.want)
				}
			})
		})
	}
}
