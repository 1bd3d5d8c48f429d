package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/inspect"
)

func (a *app) pauseCommand() *cobra.Command {
	var w who
	c := &cobra.Command{
		Use: "pause QUEUE", Short: "have no worker take tasks from a queue", Args: cobra.ExactArgs(1),
		Long: "pause pauses a queue of asynq's in all of its lanes, also in those that have had no task yet. Tasks that run go on.",
		RunE: a.do(func(ctx context.Context, args []string) error {
			return a.halt(ctx, w, inspect.ActionPause, args[0], a.conn.inspector.Pause)
		}),
	}
	w.flags(c)
	return c
}

func (a *app) unpauseCommand() *cobra.Command {
	var w who
	c := &cobra.Command{
		Use: "unpause QUEUE", Short: "have workers take tasks from a queue again", Args: cobra.ExactArgs(1),
		Long: "unpause ends a pause of a queue, whoever has paused it, in all of its lanes.",
		RunE: a.do(func(ctx context.Context, args []string) error {
			return a.halt(ctx, w, inspect.ActionUnpause, args[0], a.conn.inspector.Unpause)
		}),
	}
	w.flags(c)
	return c
}

// halt pauses a queue, or ends that.
func (a *app) halt(
	ctx context.Context, w who, action inspect.Action, queue string, do func(ctx context.Context, queue string) (bool, error),
) error {
	changed := false
	err := a.audited(ctx, w, inspect.Steering{Action: action, Task: delayqueue.Task{Queue: queue}}, func(ctx context.Context) (result string, err error) {
		changed, err = do(ctx, queue)
		return string(action) + "d", err
	})
	if err != nil {
		return err
	}
	if a.json {
		return a.out.json(map[string]any{"queue": queue, "paused": action == inspect.ActionPause, "changed": changed})
	}
	state := map[inspect.Action]string{inspect.ActionPause: "paused", inspect.ActionUnpause: "not paused"}[action]
	if !changed {
		state += ", as before"
	}
	a.out.printf("%s is %s\n", queue, state)
	return nil
}
