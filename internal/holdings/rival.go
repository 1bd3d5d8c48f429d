package holdings

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// Report is the last report of a worker.
type Report struct {
	Worker

	ID   string
	Seen time.Time // when it reported, by its own clock
}

// mostReports is how many workers [Read] returns.
const mostReports = 1000

// Read returns the reports of all workers that live, by what they have last reported: at most 1000, the newest first. It
// makes two calls.
func Read(ctx context.Context, client redis.UniversalClient) ([]Report, error) {
	entries, err := client.ZRangeArgsWithScores(ctx, redis.ZRangeArgs{Key: Workers, Start: 0, Stop: mostReports - 1, Rev: true}).Result()
	if err != nil {
		return nil, fmt.Errorf("list workers: %w", err)
	}
	texts := make([]*redis.StringCmd, len(entries))
	_, err = client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for n, e := range entries {
			id, _ := e.Member.(string)
			texts[n] = p.Get(ctx, Key(id))
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("read the reports of workers: %w", err)
	}
	var all []Report
	for n, e := range entries {
		w, err := Parse(texts[n].Val())
		if texts[n].Err() != nil || err != nil { // gone, or not ours
			continue
		}
		id, _ := e.Member.(string)
		all = append(all, Report{w, id, time.UnixMilli(cmp.Or(w.Seen, int64(e.Score)))})
	}
	return all, nil
}

// Rival is a worker that serves a queue of another worker, and has its locks in another place.
type Rival struct {
	Report

	Queue string
}

// rivalOf returns a rival of a worker, or nil if there is none. Workers whose store is not known have no rivals.
func rivalOf(id string, w Worker, reports []Report) *Rival {
	for _, r := range reports {
		if r.ID == id || w.Store == "" || r.Store == "" || r.Store == w.Store {
			continue
		}
		for _, queue := range slices.Sorted(maps.Keys(w.Queues)) {
			if _, both := r.Queues[queue]; both {
				return &Rival{r, queue}
			}
		}
	}
	return nil
}
