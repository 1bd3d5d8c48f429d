package recovery

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/bench/internal/server"
)

func TestBothWorkersHaveReportedOftenEnough(t *testing.T) {
	t.Parallel()
	s, err := server.Start(t.Context(), environment(t).Dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	report := func(worker string, score float64) {
		t.Helper()
		if err := s.Probe().ZAdd(t.Context(), "asynq:servers", redis.Z{Member: worker, Score: score}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	// One that reports again and again is not two.
	report("a", 0)
	report("b", 0)
	ctx, cancel := context.WithCancel(t.Context())
	looked := make(chan error, 1)
	client := redis.NewClient(&redis.Options{Addr: s.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	looks := make(chan struct{})
	client.AddHook(hook{looks})
	go func() { looked <- heard(ctx, client, 1) }()
	<-looks
	for score := range 3 {
		report("a", float64(score+1))
		<-looks
	}
	<-looks // a whole look without an end
	select {
	case err := <-looked:
		t.Fatalf("heard of one worker: %v", err)
	default:
	}
	report("b", 1)
	for {
		select {
		case <-looks:
			continue
		case err = <-looked:
		}
		break
	}
	if err != nil {
		t.Error(err)
	}
	cancel()
}

// hook tells of each look before it is answered.
type hook struct{ looks chan struct{} }

func (h hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "zrange" {
			select {
			case h.looks <- struct{}{}:
			case <-ctx.Done():
			}
		}
		return next(ctx, cmd)
	}
}

func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
