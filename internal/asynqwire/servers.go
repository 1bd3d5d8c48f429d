package asynqwire

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Server is an asynq server that runs, as it has reported in the last 10 s.
type Server struct {
	Host        string
	PID         int
	Queues      map[string]int // with their priorities
	Concurrency int
	Running     int // tasks

	runs string // the Redis key of what it runs
}

// Run is a task that a server runs.
type Run struct {
	Queue, ID, Type string
	Started         time.Time
}

// Servers returns the asynq servers that run.
func Servers(ctx context.Context, client redis.UniversalClient) ([]Server, error) {
	names, err := client.ZRangeByScore(ctx, ServersKey, &redis.ZRangeBy{
		Min: strconv.FormatInt(time.Now().Unix(), 10), Max: "+inf",
	}).Result()
	if err != nil {
		return nil, err
	}
	reports := make([]*redis.StringCmd, len(names))
	_, err = client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, name := range names {
			reports[i] = p.Get(ctx, name)
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	var all []Server
	for i, report := range reports {
		if report.Err() == nil { // otherwise it has just stopped
			all = append(all, serverOf(names[i], []byte(report.Val())))
		}
	}
	return all, nil
}

func serverOf(name string, report []byte) Server {
	f := parse(report)
	s := Server{
		Host: f.text(1), PID: int(f.number(2)), Queues: map[string]int{},
		Concurrency: int(f.number(4)), Running: int(f.number(9)),
		runs: WorkersKey + strings.TrimPrefix(name, ServersKey),
	}
	for _, entry := range f[5] {
		queue := parse(entry)
		s.Queues[queue.text(1)] = int(queue.number(2))
	}
	return s
}

// Runs returns what a server runs, as it has reported. It reads the payloads of the tasks, too.
func (s Server) Runs(ctx context.Context, client redis.UniversalClient) ([]Run, error) {
	reports, err := client.HVals(ctx, s.runs).Result()
	if err != nil {
		return nil, err
	}
	all := make([]Run, len(reports))
	for i, report := range reports {
		f := parse([]byte(report))
		all[i] = Run{Queue: f.text(7), ID: f.text(4), Type: f.text(5), Started: f.timestamp(8)}
	}
	return all, nil
}
