package line

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/holdings"
)

// ForemostField of a task's hash has the group that the task supersedes while it waits: see [ParkOptions].Foremost.
const ForemostField = "railtoken:foremost"

// The score of such a task among waiters is below zero: the time of its first conflict less foremostBy (us). See note in record.lua.
const foremostBy = 4e15

// JoinedAt returns when a waiter with a score was first refused, if nobody has moved it.
func JoinedAt(score float64) time.Time {
	if score < 0 {
		score += foremostBy
	}
	return time.UnixMicro(int64(score))
}

// Superseded is a task that has ended because another one supersedes it.
type Superseded struct {
	Task
	Type string
}

const (
	// SupersededWhy is why a task that was superseded ends.
	SupersededWhy = "superseded"
	// mostForemost is how many tasks that wait before others a call looks at, for each key.
	mostForemost = 1000
)

// Supersede has a task that waits take the place of others: those that hold its keys are asked to stop, and those that wait for them to
// supersede the same group, and are older, end: they are archived, or deleted if discard. It makes four calls to Redis, and one for each
// task that ends.
func (e *Engine) Supersede(ctx context.Context, s holdings.Supersession, discard bool) (ended []Superseded, err error) {
	told := e.TellHolders(ctx, s)
	older, err := e.olderThan(ctx, s)
	errs := []error{told, err}
	by := Cancellation{Discard: discard, By: "task " + Task{s.Queue, s.ID}.String(), Why: SupersededWhy}
	for _, o := range older {
		what, _, err := e.end(ctx, o.Task, by.ending()) // one that runs is left alone: if it holds a key, it is told as a holder
		if errs = append(errs, err); what == Ended {
			ended = append(ended, o)
		}
	}
	return ended, errors.Join(errs...)
}

// olderThan returns the tasks that wait for keys of a task to supersede the same group, and are older.
func (e *Engine) olderThan(ctx context.Context, s holdings.Supersession) (older []Superseded, err error) {
	own, err := e.client.HMGet(ctx, Task{s.Queue, s.ID}.Hash(), WaitField, sinceField).Result()
	if err != nil {
		return nil, err
	}
	since := sinceOf(own[1])
	if ParseWait(own[0]).First.IsZero() || since.IsZero() { // it waits no more
		return nil, nil
	}
	waiting := make([]*redis.StringSliceCmd, len(s.Keys))
	if _, err := e.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, key := range s.Keys {
			waiting[i] = p.ZRangeByScore(ctx, e.names.Waiters(key), &redis.ZRangeBy{Min: "-inf", Max: "(0", Count: mostForemost})
		}
		return nil
	}); err != nil {
		return nil, err
	}
	var entries []string
	for _, some := range waiting {
		entries = append(entries, some.Val()...)
	}
	if len(entries) == 0 {
		return nil, nil
	}
	fields := make([]*redis.SliceCmd, len(entries))
	if _, err := e.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, entry := range entries {
			fields[i] = p.HMGet(ctx, taskOf(entry).Hash(), ForemostField, sinceField, asynqwire.MessageField)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	for i, found := range fields {
		t := taskOf(entries[i])
		group, _ := found.Val()[0].(string)
		message, _ := found.Val()[2].(string)
		task := taskIn(message)
		if group != s.Group || task == nil {
			continue
		}
		newer, known := IsNewerPayload(s.ID, s.Headers, t.ID, task.Headers())
		its := sinceOf(found.Val()[1]) // zero if it was parked by an earlier version
		if newer || !known && !its.IsZero() && its.Before(since) {
			older = append(older, Superseded{t, task.Type()})
		}
	}
	return older, nil
}
