package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/asynqwire"
)

// taskOf returns the task of an argument: queue/id, or an ID alone, which is looked for in all queues.
func (a *app) taskOf(ctx context.Context, arg string) (delayqueue.Task, error) {
	arg = unquoted(arg)
	queues, err := a.conn.tasks.SMembers(ctx, asynqwire.Queues).Result()
	if err != nil {
		return delayqueue.Task{}, fmt.Errorf("list the queues: %w", err)
	}
	slices.Sort(queues)
	// A queue's name and an ID may have slashes, so the queues that exist decide.
	for _, queue := range queues {
		if id, ok := strings.CutPrefix(arg, queue+"/"); ok && id != "" {
			return delayqueue.Task{Queue: queue, ID: id}, nil
		}
	}
	if queue, id, ok := strings.Cut(arg, "/"); ok && queue != "" && id != "" {
		return delayqueue.Task{Queue: queue, ID: id}, nil
	}
	var found []delayqueue.Task
	for _, queue := range queues {
		_, known, err := asynqwire.TaskOf(ctx, a.conn.tasks, queue, arg)
		if err != nil {
			return delayqueue.Task{}, fmt.Errorf("look for task %s: %w", arg, err)
		}
		if known {
			found = append(found, delayqueue.Task{Queue: queue, ID: arg})
		}
	}
	switch len(found) {
	case 0:
		return delayqueue.Task{ID: arg}, nil
	case 1:
		return found[0], nil
	default:
		return delayqueue.Task{}, fmt.Errorf("several queues have a task %s: name one of them, such as %s", arg, found[0])
	}
}
