package parking

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// servedFresh is how long what is known of the queues that servers work on is good enough, and servedStale how long
	// it counts at all.
	servedFresh = time.Second
	servedStale = 30 * time.Second
)

// served is what is known of the queues that no server works on. asynq's own list of its servers tells: one that has
// been killed stays in it for ten seconds. Nothing is asked as long as every task that was woken is fetched.
type served struct {
	mu       sync.Mutex
	asked    time.Time // when asynq was asked last
	asking   bool
	unserved []string

	servers []string // the servers that there were; used by the one that is asking
	working map[string]bool
}

// lookForUnserved finds out which queues no server works on, unless it did so a second ago or is doing so. There are
// none when asynq names no server at all, as after an outage of Redis, cannot be asked, or does not know of one of its
// servers what it works on.
func (e *Engine) lookForUnserved(ctx context.Context) {
	s := &e.served
	s.mu.Lock()
	if s.asking || time.Since(s.asked) < servedFresh {
		s.mu.Unlock()
		return
	}
	s.asking = true
	before := s.unserved
	s.mu.Unlock()
	unserved, err := e.findUnserved(ctx, s)
	if err != nil {
		e.log.WarnContext(ctx, "the queues that servers work on are not known; a task may be woken that nobody fetches",
			"error", err)
	}
	for _, queue := range unserved {
		if !slices.Contains(before, queue) {
			e.log.WarnContext(ctx, "no server works on a queue: have a worker serve it, or remove it", "queue", queue)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked, s.asking, s.unserved = time.Now(), false, unserved
}

// findUnserved asks asynq. The queues of a server never change, so they are read when there are other servers than
// before.
func (e *Engine) findUnserved(ctx context.Context, s *served) ([]string, error) {
	var queues, servers *redis.StringSliceCmd
	_, err := e.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		queues = pipe.SMembers(ctx, "asynq:queues")
		servers = pipe.ZRangeByScore(ctx, "asynq:servers",
			&redis.ZRangeBy{Min: strconv.FormatInt(time.Now().Unix(), 10), Max: "+inf"})
		return nil
	})
	if err != nil {
		return nil, err
	}
	names := slices.Sorted(slices.Values(servers.Val()))
	if s.working == nil || !slices.Equal(names, s.servers) {
		infos, err := e.inspect.Servers()
		if err != nil {
			return nil, err
		}
		if len(infos) < len(names) { // asynq leaves out one that it could not read, and one whose heartbeat is late
			s.working = nil
			return nil, nil
		}
		s.servers, s.working = names, map[string]bool{}
		for _, info := range infos {
			for queue := range info.Queues {
				s.working[queue] = true
			}
		}
	}
	if len(s.working) == 0 {
		return nil, nil
	}
	return slices.DeleteFunc(queues.Val(), func(queue string) bool { return s.working[queue] }), nil
}

// knownUnserved returns the queues that no server worked on when asynq was asked last, and has it asked again in the
// background when there were some. It makes no call to Redis itself.
func (e *Engine) knownUnserved() []string {
	s := &e.served
	s.mu.Lock()
	unserved, age := s.unserved, time.Since(s.asked)
	s.mu.Unlock()
	if len(unserved) > 0 && age > servedFresh {
		e.background(e.closing, followLimit, func(ctx context.Context) { e.lookForUnserved(ctx) })
	}
	if age > servedStale {
		return nil
	}
	return unserved
}
