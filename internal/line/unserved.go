package line

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/lanes"
)

const (
	// unservedFresh is the age up to which the list of unserved queues is not read again. Above unservedStale it does not
	// count at all.
	unservedFresh = time.Second
	unservedStale = 30 * time.Second
)

// lookForUnserved finds out of which queues no server fetches tasks, unless it did so a second ago or is doing so. There
// are none when asynq's list names no server, as after an outage of Redis, when it cannot be read, and when the queues of
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
	unserved, starved, err := e.findUnserved(ctx, s)
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
	s.asked, s.asking, s.queues, s.starved = time.Now(), false, slices.Concat(unserved, starved), len(starved)
}

// findUnserved reads asynq's list. The queues of a server never change, so they are read only when the servers differ
// from those before.
func (e *Engine) findUnserved(ctx context.Context, s *unservedQueues) (unserved, starved []string, err error) {
	var queues, servers *redis.StringSliceCmd
	_, err = e.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		queues = pipe.SMembers(ctx, asynqwire.Queues)
		servers = pipe.ZRangeByScore(ctx, asynqwire.ServersKey,
			&redis.ZRangeBy{Min: strconv.FormatInt(time.Now().Unix(), 10), Max: "+inf"})
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	names := slices.Sorted(slices.Values(servers.Val()))
	if s.working == nil || !slices.Equal(names, s.servers) {
		infos, err := e.inspect.Servers()
		if err != nil {
			return nil, nil, err
		}
		if len(infos) < len(names) { // asynq leaves out one that it could not read, and one whose heartbeat is late
			infos = nil
		}
		s.servers, s.working = names, infos
	}
	if len(s.working) == 0 {
		return nil, nil, nil
	}
	busy, err := e.findBusy(ctx, s.working)
	if err != nil {
		return nil, nil, err
	}
	for _, queue := range queues.Val() {
		serve, open := false, false
		for _, server := range s.working {
			weight, ok := server.Queues[e.baseOf(queue)]
			serve = serve || ok
			open = open || ok && !slices.ContainsFunc(busy, func(other string) bool {
				return server.StrictPriority && server.Queues[other] > weight
			})
		}
		if !serve {
			unserved = append(unserved, queue)
		} else if !open {
			starved = append(starved, queue)
		}
	}
	return unserved, starved, nil
}

// findBusy returns the queues of servers with StrictPriority that have pending tasks, and that are not paused.
func (e *Engine) findBusy(ctx context.Context, servers []*asynq.ServerInfo) (busy []string, err error) {
	pending, paused := map[string]*redis.IntCmd{}, map[string]*redis.IntCmd{}
	_, err = e.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, server := range servers {
			for queue := range server.Queues {
				if server.StrictPriority && pending[queue] == nil {
					for _, one := range e.names.Queues(queue) {
						pending[one] = pipe.LLen(ctx, asynqwire.Pending(one))
						paused[one] = pipe.Exists(ctx, asynqwire.Paused(one))
					}
				}
			}
		}
		return nil
	})
	for queue, tasks := range pending {
		if tasks.Val() > 0 && paused[queue].Val() == 0 {
			busy = append(busy, e.baseOf(queue))
		}
	}
	return busy, err
}

// baseOf returns the queue that a server names in asynq's list if it works on a queue: with lanes, that is the queue without its
// lane.
func (e *Engine) baseOf(queue string) string {
	if _, ok := e.names.In(queue); ok {
		return lanes.Base(queue)
	}
	return queue
}

// knownUnserved returns the queues of which no server fetched tasks when the list was last read, and how many of them
// starved: these come last. If there were any, the list is read again in the background. It makes no call to Redis itself.
func (e *Engine) knownUnserved() (queues []string, starved int) {
	s := &e.unserved
	s.mu.Lock()
	again := len(s.queues) > 0 && time.Since(s.asked) > unservedFresh
	s.mu.Unlock()
	queues, starved = e.lastUnserved()
	if again {
		e.background(e.closing, followUpLimit, func(ctx context.Context) { e.lookForUnserved(ctx) })
	}
	return queues, starved
}

// lastUnserved returns the same and reads nothing: none if the list was read long ago.
func (e *Engine) lastUnserved() (queues []string, starved int) {
	s := &e.unserved
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.asked) > unservedStale {
		return nil, 0
	}
	return s.queues, s.starved
}
