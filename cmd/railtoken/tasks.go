package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/lanes"
	lines "github.com/railtoken/railtoken/internal/line"
)

// taskOf returns the task of an argument: queue/id, where the task may be in a lane of the queue, or an ID alone, which is looked for in
// all queues.
func (a *app) taskOf(ctx context.Context, arg string) (delayqueue.Task, error) {
	arg = unquoted(arg)
	queues, err := a.conn.tasks.SMembers(ctx, asynqwire.Queues).Result()
	if err != nil {
		return delayqueue.Task{}, fmt.Errorf("list the queues: %w", err)
	}
	slices.Sort(queues)
	named, meant := candidates(queues, arg)
	found, err := a.known(ctx, meant)
	switch {
	case err != nil:
		return delayqueue.Task{}, fmt.Errorf("look for task %s: %w", arg, err)
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1 && named.Queue == "":
		return delayqueue.Task{}, fmt.Errorf("several queues have a task %s: name one of them, such as %s", arg, found[0])
	case len(found) > 1:
		return delayqueue.Task{}, fmt.Errorf("several lanes have a task %s: name one of them, such as %s", arg, found[0])
	}
	return named, nil
}

// candidates returns the task that an argument names, without a queue if it is an ID alone, and the tasks that may be meant. A
// queue's name and an ID may have slashes, so the queues that exist decide.
func candidates(queues []string, arg string) (named delayqueue.Task, meant []delayqueue.Task) {
	for _, queue := range queues {
		for _, name := range []string{queue, lanes.Base(queue)} {
			if id, ok := strings.CutPrefix(arg, name+"/"); ok && id != "" {
				named = delayqueue.Task{Queue: name, ID: id}
				for _, other := range queues {
					if other == name || lanes.Base(other) == name {
						meant = append(meant, delayqueue.Task{Queue: other, ID: id})
					}
				}
				return named, meant
			}
		}
	}
	if queue, id, ok := strings.Cut(arg, "/"); ok && queue != "" && id != "" {
		return delayqueue.Task{Queue: queue, ID: id}, nil
	}
	for _, queue := range queues {
		meant = append(meant, delayqueue.Task{Queue: queue, ID: arg})
	}
	return delayqueue.Task{ID: arg}, meant
}

// known returns those tasks that asynq knows.
func (a *app) known(ctx context.Context, tasks []delayqueue.Task) (found []delayqueue.Task, err error) {
	exist := make([]*redis.IntCmd, len(tasks))
	if len(tasks) == 0 {
		return nil, nil
	}
	_, err = a.conn.tasks.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, t := range tasks {
			exist[i] = p.Exists(ctx, lines.Task(t).Hash())
		}
		return nil
	})
	for i, t := range tasks {
		if exist[i].Val() > 0 {
			found = append(found, t)
		}
	}
	return found, err
}
