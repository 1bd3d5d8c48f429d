package lanemove_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/lanemove"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/leaktest"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

func TestMain(m *testing.M) { leaktest.Verify(m) }

const (
	inLanes = 16
	queue   = "orders"
	limit   = 2 * time.Minute
)

// job is the payload of the tasks.
type job struct {
	Name, Key string
	Fails     bool
}

var errBroken = errors.New("the warehouse does not answer")

// system is a Redis Cluster with tasks on it.
type system struct {
	*testing.T
	cluster *redistest.Cluster
	client  *redis.ClusterClient
}

func newSystem(t *testing.T) *system {
	t.Helper()
	cluster := redistest.StartCluster(t, 3)
	return &system{t, cluster, cluster.Client(t)}
}

func (s *system) at(lanes int) worker.Redis {
	return worker.Redis{Cluster: s.cluster.Addrs(), Lanes: lanes}
}

// work starts a worker.
func (s *system) work(lanes int, run func(context.Context, job) error) *worker.Worker {
	s.Helper()
	w, err := worker.New(worker.Config{
		Redis: s.at(lanes), Queues: map[string]int{queue: 1, "audit": 1}, Concurrency: 8, ShutdownTimeout: 10 * time.Millisecond,
	})
	if err != nil {
		s.Fatal(err)
	}
	for name, strategy := range map[string]middleware.Strategy{
		"best": middleware.Requeue{}, "fifo": middleware.Requeue{Order: middleware.FIFO},
	} {
		err := worker.Handle(w, name, worker.Handler[job]{Strategy: strategy, Keys: func(j job) []string { return []string{j.Key} }, Run: run})
		if err != nil {
			s.Fatal(err)
		}
	}
	s.Cleanup(func() { _ = w.Shutdown() })
	if err := w.Start(s.Context()); err != nil {
		s.Fatal(err)
	}
	return w
}

// producer returns a client that records the keys of tasks.
func (s *system) producer() *worker.Client {
	s.Helper()
	key := middleware.PayloadKey(func(j job) string { return j.Key })
	p, err := worker.NewClientWith(s.at(0), attach.ProducerOptions{Keys: map[string]middleware.KeyFunc{"best": key, "fifo": key}})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = p.Close() })
	return p
}

func (s *system) add(p *worker.Client, kind string, j job, opts ...asynq.Option) {
	s.Helper()
	opts = append([]asynq.Option{asynq.Queue(queue), asynq.TaskID(j.Name)}, opts...)
	if _, err := p.Enqueue(s.Context(), kind, j, opts...); err != nil {
		s.Fatal(err)
	}
}

func (s *system) addInOrder(p *worker.Client, j job) {
	s.Helper()
	if _, err := p.EnqueueInOrder(s.Context(), j.Key, "fifo", j, asynq.Queue(queue), asynq.TaskID(j.Name)); err != nil {
		s.Fatal(err)
	}
}

// until waits for something that Redis tells.
func (s *system) until(what string, is func() bool) {
	s.Helper()
	s.within(limit, what, is)
}

func (s *system) within(most time.Duration, what string, is func() bool) {
	s.Helper()
	for end := time.Now().Add(most); !is(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatalf("never: %s", what)
		}
	}
}

func (s *system) size(set string) int {
	n, err := s.client.ZCard(s.Context(), set).Result()
	if err != nil {
		s.Fatal(err)
	}
	return int(n)
}

// move moves the tasks of the queue; after some commands the process crashes, unless crash is nil.
func (s *system) move(c *redistest.Crash, progress func(int)) (*lanemove.Report, error) {
	s.Helper()
	client := s.cluster.Client(s)
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	if c != nil {
		c.Ended = cancel
		client.AddHook(c)
	}
	q, err := delayqueue.New(client, delayqueue.Options{Lanes: inLanes})
	if err != nil {
		s.Fatal(err)
	}
	defer q.Close()
	return lanemove.Run(ctx, lanemove.Options{Engine: (*line.Engine)(q), Queue: queue, Progress: progress})
}

// image is what the masters have: keys as DUMP returns them.
type image map[string]string

// isPassing reports whether a key ends by itself, and says nothing about tasks.
func isPassing(name string) bool {
	return slices.ContainsFunc([]string{
		"railtoken:move:", "railtoken:worker", "railtoken:history:", "railtoken:recovery:", "asynq:servers", "asynq:workers",
	}, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

func (s *system) names() (names []string) {
	s.Helper()
	var mu sync.Mutex
	err := s.client.ForEachMaster(s.Context(), func(ctx context.Context, master *redis.Client) error {
		some, err := master.Keys(ctx, "*").Result()
		mu.Lock()
		defer mu.Unlock()
		names = append(names, some...)
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	return names
}

func (s *system) save() image {
	s.Helper()
	all := image{}
	for _, name := range s.names() {
		if isPassing(name) {
			continue
		}
		text, err := s.client.Dump(s.Context(), name).Result()
		if err != nil {
			s.Fatal(err)
		}
		all[name] = text
	}
	return all
}

func (s *system) restore(all image) {
	s.Helper()
	err := s.client.ForEachMaster(s.Context(), func(ctx context.Context, master *redis.Client) error { return master.FlushAll(ctx).Err() })
	if err != nil {
		s.Fatal(err)
	}
	_, err = s.client.Pipelined(s.Context(), func(p redis.Pipeliner) error {
		for name, text := range all {
			ttl := time.Duration(0)
			if strings.Contains(name, ":unique:") {
				ttl = time.Hour
			}
			p.Restore(s.Context(), name, ttl, text)
		}
		return nil
	})
	if err != nil {
		s.Fatal(err)
	}
}

// text returns what is stored, without what depends on when it was: one line for each field and each member.
func (s *system) text() string {
	s.Helper()
	var lines []string
	for _, name := range s.names() {
		ctx := s.Context()
		switch kind := s.client.Type(ctx, name).Val(); {
		case isPassing(name):
		case kind == "hash":
			if ttl := s.client.PTTL(ctx, name).Val(); ttl > 0 {
				continue // a copy that nobody has activated ends by itself
			}
			all := s.client.HGetAll(ctx, name).Val()
			for _, field := range slices.Sorted(maps.Keys(all)) {
				lines = append(lines, fmt.Sprintf("%s %s %q", name, field, all[field]))
			}
		case kind == "list":
			for _, id := range s.client.LRange(ctx, name, 0, -1).Val() {
				lines = append(lines, name+" "+id)
			}
		case kind == "set":
			for _, id := range s.client.SMembers(ctx, name).Val() {
				lines = append(lines, name+" "+id)
			}
		case kind == "zset":
			for _, z := range s.client.ZRangeWithScores(ctx, name, 0, -1).Val() {
				if strings.HasPrefix(name, "railtoken:parked") {
					z.Score = 0
				}
				lines = append(lines, fmt.Sprintf("%s %v %f", name, z.Member, z.Score))
			}
		default:
			lines = append(lines, name+" "+s.client.Get(ctx, name).Val())
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
