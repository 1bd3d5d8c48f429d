package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/hibiken/asynq"
	"github.com/spf13/cobra"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/middleware"
)

// replayOptions are the flags of replay.
type replayOptions struct {
	task, queue, key, limit string
	most                    int
	all, dry                bool
	who                     who
}

func (a *app) replayCommand() *cobra.Command {
	o := replayOptions{most: 1000}
	c := &cobra.Command{
		Use: "replay", Short: "run archived tasks again: one, or those archived because of a conflict", Args: cobra.NoArgs,
		Long: "replay runs tasks of a queue again that were archived because of a conflict, oldest first; --key and\n" +
			"--because select among them. --all-causes replays tasks that were archived for any reason. --task replays one.",
		RunE: a.doLong(func(ctx context.Context, _ []string) error { return a.replay(ctx, o) }),
	}
	f := c.Flags()
	f.StringVar(&o.task, "task", "", "replay this archived `task`, whatever the reason")
	f.StringVar(&o.queue, "queue", "", "replay archived tasks of this `queue`")
	f.StringVar(&o.key, "key", "", "only tasks that were archived because of this `key`")
	f.StringVar(&o.limit, "because", "", "only tasks that reached this `limit`: conflicts, age, waiters or total")
	f.IntVarP(&o.most, "most", "n", o.most, "the largest `number` of tasks to replay")
	f.BoolVar(&o.all, "all-causes", false, "also tasks that were archived for a reason other than a conflict")
	f.BoolVar(&o.dry, "dry-run", false, "list the tasks, and change nothing")
	o.who.flags(c)
	c.MarkFlagsOneRequired("task", "queue")
	c.MarkFlagsMutuallyExclusive("task", "queue")
	c.MarkFlagsMutuallyExclusive("all-causes", "key")
	c.MarkFlagsMutuallyExclusive("all-causes", "because")
	_ = c.RegisterFlagCompletionFunc("because",
		cobra.FixedCompletions([]string{"conflicts", "age", "waiters", "total"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// replayed is a task that replay has chosen.
type replayed struct {
	Task string `json:"task"`
	Type string `json:"type"`
	*jsonKey
	Because string `json:"because"`
}

func (a *app) replay(ctx context.Context, o replayOptions) error {
	switch o.limit {
	case "", "conflicts", "age", "waiters", "total":
	default:
		return fmt.Errorf("--because is %q: it must be conflicts, age, waiters or total", o.limit)
	}
	if o.most < 1 {
		return fmt.Errorf("--most is %d: it must be at least 1", o.most)
	}
	inspector := a.conn.inspector.Queue().Inspector()
	if o.task != "" {
		t, err := a.taskOf(ctx, o.task)
		if err != nil {
			return err
		}
		return a.replayOne(ctx, inspector, t, o)
	}
	key := ""
	if o.key != "" {
		key = a.keyOf(o.key)
	}
	var all []replayed
	choose := func(info *asynq.TaskInfo) bool {
		r, ok := chosen(a, info, key, o)
		if ok {
			all = append(all, r)
			a.progress(len(all))
		}
		return ok && !o.dry
	}
	var n int
	run := func(ctx context.Context) (result string, err error) {
		n, err = inspector.ReplayAll(ctx, o.queue, o.most, func(info *asynq.TaskInfo) bool {
			return len(all) < o.most && choose(info)
		})
		return fmt.Sprintf("%d tasks run again", n), err
	}
	var err error
	if o.dry {
		_, err = run(ctx)
	} else {
		s := inspect.Steering{Action: inspect.ActionReplay, Key: key, Task: delayqueue.Task{Queue: o.queue}}
		err = a.audited(ctx, o.who, s, run)
	}
	a.endProgress(len(all))
	if errors.Is(err, asynq.ErrQueueNotFound) {
		return fmt.Errorf("asynq knows no queue %q", o.queue)
	}
	if err != nil {
		return fmt.Errorf("%d tasks were replayed, then: %w", n, err)
	}
	if a.json {
		if all == nil {
			all = []replayed{}
		}
		return a.out.json(map[string]any{"replayed": n, "dry_run": o.dry, "tasks": all})
	}
	if o.dry {
		rows := make([][]string, len(all))
		for i, r := range all {
			k := "-"
			if r.jsonKey != nil {
				k = a.key(r.Key)
			}
			rows[i] = []string{plain(r.Task), r.Type, k, r.Because}
		}
		a.out.table("No archived task is chosen.", "TASK TYPE KEY BECAUSE", rows)
		return nil
	}
	a.out.printf("%d tasks run again\n", n)
	return nil
}

func (a *app) replayOne(ctx context.Context, inspector *delayqueue.Inspector, t delayqueue.Task, o replayOptions) error {
	if o.dry {
		info, err := asynq.NewInspectorFromRedisClient(a.conn.tasks).GetTaskInfo(t.Queue, t.ID)
		if err != nil || info.State != asynq.TaskStateArchived {
			return fmt.Errorf("task %s is not archived", t)
		}
	} else {
		err := a.audited(ctx, o.who, inspect.Steering{Action: inspect.ActionReplay, Task: t}, func(ctx context.Context) (string, error) {
			return "runs again", inspector.Replay(ctx, t)
		})
		if err != nil {
			return err
		}
	}
	if a.json {
		return a.out.json(map[string]any{"replayed": map[bool]int{false: 1}[o.dry], "dry_run": o.dry, "tasks": []replayed{{Task: t.String()}}})
	}
	word := "runs again"
	if o.dry {
		word = "would run again"
	}
	a.out.printf("task %s %s\n", plain(t.String()), word)
	return nil
}

// chosen reports whether an archived task is one to replay.
func chosen(a *app, info *asynq.TaskInfo, key string, o replayOptions) (replayed, bool) {
	r := replayed{Task: info.Queue + "/" + info.ID, Type: info.Type, Because: info.LastErr}
	conflict, err := middleware.ParseConflict(info.Result)
	if err != nil {
		return r, o.all
	}
	k := a.jsonKey(conflict.Key)
	r.jsonKey, r.Because = &k, string(conflict.Limit)
	if conflict.Limit == delayqueue.NoLimit {
		r.Because = "held"
		if !o.all {
			return r, false
		}
	}
	return r, (o.key == "" || conflict.Key == key) && (o.limit == "" || string(conflict.Limit) == o.limit)
}

// progress shows on a terminal how far long work has come.
func (a *app) progress(n int) {
	if n%100 == 0 {
		a.errOut.progress(fmt.Sprintf("%d tasks", n))
	}
}

func (a *app) endProgress(n int) {
	if n >= 100 {
		a.errOut.progress("")
	}
}
