package doctor

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/line"
)

// gatherFull reads what the servers run whose slots are all in use.
func (f *Facts) gatherFull(ctx context.Context, client redis.UniversalClient, servers []asynqwire.Server) error {
	for _, s := range servers {
		if s.Concurrency == 0 || s.Running < s.Concurrency {
			continue
		}
		runs, err := s.Runs(ctx, client)
		if err != nil {
			return err
		}
		full := Full{Name: s.Host + "/" + strconv.Itoa(s.PID), Queues: s.Queues, Slots: s.Concurrency}
		for _, run := range runs {
			if run.Started.After(full.Last) {
				full.Last = run.Started
			}
			full.Types = append(full.Types, run.Type)
		}
		slices.Sort(full.Types)
		full.Types = slices.Compact(full.Types)
		if len(runs) >= s.Concurrency { // otherwise one has just ended
			f.Full = append(f.Full, full)
		}
	}
	return nil
}

// recent is how long ago an archived task must have failed to say something about now.
const recent = time.Hour

// gatherFailures looks for tasks whose last runs found no handler, among those that are retried and the last archived ones.
func (f *Facts) gatherFailures(ctx context.Context, client redis.UniversalClient) error {
	type failed struct {
		task delayqueue.Task
		msg  string
	}
	var all []failed
	note := func(q *Queue, ids *redis.StringSliceCmd) {
		for _, id := range ids.Val() {
			all = append(all, failed{task: delayqueue.Task{Queue: q.Name, ID: id}})
		}
	}
	if err := pipelined(ctx, client, f.Queues, func(p redis.Pipeliner, q *Queue) *redis.StringSliceCmd {
		return p.ZRange(ctx, asynqwire.Retry(q.Name), 0, mostMessages-1)
	}, note); err != nil {
		return err
	}
	if err := pipelined(ctx, client, f.Queues, func(p redis.Pipeliner, q *Queue) *redis.StringSliceCmd {
		return p.ZRangeArgs(ctx, redis.ZRangeArgs{
			Key: asynqwire.Archived(q.Name), ByScore: true, Rev: true, Count: mostMessages / 2,
			Start: strconv.FormatInt(f.At.Add(-recent).Unix(), 10), Stop: "+inf",
		})
	}, note); err != nil {
		return err
	}
	if err := pipelined(ctx, client, all, func(p redis.Pipeliner, t *failed) *redis.StringCmd {
		return p.HGet(ctx, line.Task(t.task).Hash(), asynqwire.MessageField)
	}, func(t *failed, msg *redis.StringCmd) { t.msg = msg.Val() }); err != nil {
		return err
	}
	byType := map[string]int{}
	for _, t := range all {
		m := asynqwire.ReadMessage(t.msg)
		if !strings.Contains(m.LastErr, noHandler) {
			continue
		}
		byType[m.Type]++
		if byType[m.Type] == 1 {
			f.Unhandled = append(f.Unhandled, Unhandled{Type: m.Type, Task: t.task})
		}
	}
	for i, u := range f.Unhandled {
		f.Unhandled[i].Tasks = byType[u.Type]
	}
	return nil
}
