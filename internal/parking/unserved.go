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
	// unservedFresh is for how long the list of unserved queues is not read again, and unservedStale for how long it
	// counts at all.
	unservedFresh = time.Second
	unservedStale = 30 * time.Second
)

// unservedQueues is what is known of the queues that no server works on, by asynq's own list of its servers. A server
// that was killed stays in that list for ten seconds. The list is not read as long as every woken task is fetched.
type unservedQueues struct {
	mu     sync.Mutex
	asked  time.Time // when the list was last read
	asking bool
	queues []string

	servers []string // in the list when it was last read; only the reader uses it
	working map[string]bool
}

// lookForUnserved finds out which queues no server works on, unless it did so a second ago or is doing so. There are
// none when asynq's list names no server, as after an outage of Redis, when it cannot be read, and when the queues of
// one of the servers are unknown.
func (e *Engine) lookForUnserved(ctx context.Context) {
	s := &e.unserved
	s.mu.Lock()
	if s.asking || time.Since(s.asked) < unservedFresh {
		s.mu.Unlock()
		return
	}
	s.asking = true
	before := s.queues
	s.mu.Unlock()
	unserved, err := e.findUnserved(ctx, s)
	if err != nil {
		e.log.WarnContext(ctx, "the queues that servers work on are not known; a task may be woken that no server fetches",
			"error", err)
	}
	for _, queue := range unserved {
		if !slices.Contains(before, queue) {
			e.log.WarnContext(ctx, "no server works on a queue: have a worker serve it, or remove it", "queue", queue)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked, s.asking, s.queues = time.Now(), false, unserved
}

// findUnserved reads asynq's list. The queues of a server never change, so they are read only when the servers differ
// from those before.
func (e *Engine) findUnserved(ctx context.Context, s *unservedQueues) ([]string, error) {
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

// knownUnserved returns the queues that no server worked on when the list was last read. If there were any, the list is
// read again in the background. It makes no call to Redis itself.
func (e *Engine) knownUnserved() []string {
	s := &e.unserved
	s.mu.Lock()
	again := len(s.queues) > 0 && time.Since(s.asked) > unservedFresh
	s.mu.Unlock()
	unserved := e.lastUnserved()
	if again {
		e.background(e.closing, followUpLimit, func(ctx context.Context) { e.lookForUnserved(ctx) })
	}
	return unserved
}

// lastUnserved returns the queues that no server worked on when the list was last read, none if that was long ago.
func (e *Engine) lastUnserved() []string {
	s := &e.unserved
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.asked) > unservedStale {
		return nil
	}
	return s.queues
}
