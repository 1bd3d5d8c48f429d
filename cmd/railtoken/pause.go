package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/inspect"
)

func (a *app) pauseCommand() *cobra.Command {
	return a.haltCommand(inspect.ActionPause, "have no worker take tasks from a queue",
		"pause pauses a queue of asynq's in all of its lanes, also in those that have had no task yet. Tasks that run go on.")
}

func (a *app) unpauseCommand() *cobra.Command {
	return a.haltCommand(inspect.ActionUnpause, "have workers take tasks from a queue again",
		"unpause ends a pause of a queue, whoever has paused it, in all of its lanes.")
}

// haltCommand is the command that pauses a queue, or ends that.
func (a *app) haltCommand(action inspect.Action, short, long string) *cobra.Command {
	var w who
	c := &cobra.Command{
		Use: string(action) + " QUEUE", Short: short, Long: long, Args: cobra.ExactArgs(1),
		RunE: a.do(func(ctx context.Context, args []string) error { return a.halt(ctx, w, action, args[0]) }),
	}
	w.flags(c)
	return c
}

func (a *app) halt(ctx context.Context, w who, action inspect.Action, queue string) error {
	do, state := a.conn.inspector.Pause, "paused"
	if action == inspect.ActionUnpause {
		do, state = a.conn.inspector.Unpause, "not paused"
	}
	changed := false
	err := a.audited(ctx, w, inspect.Steering{Action: action, Task: delayqueue.Task{Queue: queue}}, func(ctx context.Context) (result string, err error) {
		changed, err = do(ctx, queue)
		return string(action) + "d", err
	})
	switch {
	case err != nil:
		return err
	case a.json:
		return a.out.json(map[string]any{"queue": queue, "paused": action == inspect.ActionPause, "changed": changed})
	case !changed:
		state += ", as before"
	}
	a.out.printf("%s is %s\n", queue, state)
	return nil
}
