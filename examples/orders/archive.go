package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/middleware"
)

// mostArchived is how many archived tasks asynq keeps for a queue. It silently deletes older ones.
const mostArchived = 10_000

// archives reads the archives of a run's queues.
type archives struct {
	conn    redis.UniversalClient
	inspect *asynq.Inspector
	names   []string
}

func newArchives(conn redis.UniversalClient, run runID) *archives {
	return &archives{conn: conn, inspect: asynq.NewInspectorFromRedisClient(conn), names: run.allQueues()}
}

// queues returns the queues that have had a task. With lanes asynq knows one in each of them, which is called as audit-x@17-48b.
func (a *archives) queues() ([]string, error) {
	all, err := a.inspect.Queues()
	if err != nil {
		return nil, fmt.Errorf("orders: list asynq's queues: %w", err)
	}
	return slices.DeleteFunc(all, func(queue string) bool {
		name, _, _ := strings.Cut(queue, "@")
		return !slices.Contains(a.names, name)
	}), nil
}

// count returns how many tasks are in the archives.
func (a *archives) count() (int, error) {
	queues, err := a.queues()
	if err != nil {
		return 0, err
	}
	total := 0
	for _, queue := range queues {
		info, err := a.inspect.GetQueueInfo(queue)
		if err != nil {
			return 0, fmt.Errorf("orders: look at queue %s: %w", queue, err)
		}
		total += info.Archived
	}
	return total, nil
}

// archived is what the archives hold, by task ID.
type archived struct {
	Refused map[string]*middleware.ConflictError // with the conflict that is their reason
	Failed  map[string]string                    // for any other reason: the task's last error
}

// read returns the tasks in the archives.
func (a *archives) read() (archived, error) {
	found := archived{Refused: map[string]*middleware.ConflictError{}, Failed: map[string]string{}}
	queues, err := a.queues()
	if err != nil {
		return found, err
	}
	for _, queue := range queues {
		err := pages(queue, a.inspect.ListArchivedTasks, func(task *asynq.TaskInfo) {
			conflict, err := middleware.ParseConflict(task.Result)
			if err != nil || task.LastErr == "" {
				found.Failed[task.ID] = task.LastErr
				return
			}
			found.Refused[task.ID] = conflict
		})
		if err != nil {
			return found, err
		}
	}
	return found, nil
}

// alive returns the tasks that asynq still has to run, by ID, each with its state.
func (a *archives) alive() (map[string]string, error) {
	queues, err := a.queues()
	if err != nil {
		return nil, err
	}
	alive := map[string]string{}
	for _, queue := range queues {
		for _, list := range []func(string, ...asynq.ListOption) ([]*asynq.TaskInfo, error){
			a.inspect.ListActiveTasks, a.inspect.ListPendingTasks, a.inspect.ListRetryTasks, a.inspect.ListScheduledTasks,
		} {
			err := pages(queue, list, func(task *asynq.TaskInfo) {
				alive[task.ID] = fmt.Sprintf("%s in queue %s, %d of %d retries used, last error %q", task.State, queue, task.Retried, task.MaxRetry, task.LastErr)
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return alive, nil
}

// pages calls f for every task of a list.
func pages(queue string, list func(string, ...asynq.ListOption) ([]*asynq.TaskInfo, error), f func(*asynq.TaskInfo)) error {
	const size = 1000
	for page := 1; ; page++ {
		tasks, err := list(queue, asynq.PageSize(size), asynq.Page(page))
		if errors.Is(err, asynq.ErrQueueNotFound) {
			return nil // it never had a task
		}
		if err != nil {
			return fmt.Errorf("orders: read queue %s: %w", queue, err)
		}
		for _, task := range tasks {
			f(task)
		}
		if len(tasks) < size {
			return nil
		}
	}
}

const (
	// clearPatience is how long to wait for other processes to end tasks of a queue that is to be deleted.
	clearPatience = 10 * time.Second
	clearTick     = 50 * time.Millisecond
)

// clear deletes the queues with everything in them, and asynq's counters for them.
func (a *archives) clear(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, clearPatience)
	defer cancel()
	queues, err := a.queues()
	errs := []error{err}
	for _, queue := range queues {
		errs = append(errs, a.clearQueue(ctx, queue))
	}
	return errors.Join(errs...)
}

func (a *archives) clearQueue(ctx context.Context, queue string) error {
	ticker := time.NewTicker(clearTick)
	defer ticker.Stop()
	for {
		err := a.inspect.DeleteQueue(queue, true)
		if err == nil || errors.Is(err, asynq.ErrQueueNotFound) {
			break
		}
		select { // asynq refuses to delete a queue with an active task
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("orders: delete queue %s: %w", queue, err)
		}
	}
	// DeleteQueue leaves the counters behind, some of them forever.
	today := ":" + time.Now().UTC().Format(time.DateOnly)
	var counters []string
	for _, counter := range []string{"processed", "failed", "processed" + today, "failed" + today} {
		counters = append(counters, "asynq:{"+queue+"}:"+counter)
	}
	if err := a.conn.Del(ctx, counters...).Err(); err != nil {
		return fmt.Errorf("orders: delete the counters of queue %s: %w", queue, err)
	}
	return nil
}
