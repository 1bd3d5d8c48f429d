package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/railtoken/railtoken/inspect"
)

func (a *app) cancelCommand() *cobra.Command {
	var how inspect.Cancellation
	yes := false
	c := &cobra.Command{
		Use: "cancel TASK", Short: "end a task that waits or runs", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeTasks,
		SuggestFor: []string{"stop", "kill", "abort"},
		Long: "cancel ends a task, whether it waits, is scheduled or runs, and uses up no retry. It archives the task, so that it\n" +
			"can be run again, or deletes it with --discard. It asks first, unless --yes is given.\n\n" +
			"A handler that runs is told: its context ends. It keeps its keys until it returns, so that it can clean up. If it then\n" +
			"returns an error, the task ends as asked; if it succeeds, the task is done. The next task of its keys runs afterwards. A\n" +
			"handler that ignores its context goes on: depose takes its key away.",
		RunE: a.doLong(func(ctx context.Context, args []string) error { return a.cancel(ctx, args[0], how, yes) }),
	}
	c.Flags().BoolVar(&how.Discard, "discard", false, "delete the task instead of archiving it")
	c.Flags().StringVar(&how.Why, "why", "", "the reason, for the task's error and the audit")
	c.Flags().StringVar(&how.By, "by", "", "the operator's name, for both (default: the user of this machine)")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}

func (a *app) cancel(ctx context.Context, arg string, how inspect.Cancellation, yes bool) error {
	t, err := a.taskOf(ctx, arg)
	if err != nil {
		return err
	}
	e, err := a.explanation(ctx, t)
	if err != nil {
		return err
	}
	if e.Key != "" {
		a.shown[e.Key] = true
	}
	what := "archive"
	if how.Discard {
		what = "delete"
	}
	if err := a.confirm(ctx, fmt.Sprintf("Cancel and %s task %s, which is %s?", what, plain(t.String()), e.State), yes); err != nil {
		return err
	}
	how.By, how.Why, how.Key = cmp.Or(how.By, whoami()), strings.TrimSpace(how.Why), e.Key
	told, err := a.conn.inspector.Cancel(ctx, t, how)
	if err != nil {
		return err
	}
	if a.json {
		return a.out.json(map[string]any{"task": t.String(), "told": told, "discard": how.Discard})
	}
	switch {
	case told:
		a.out.printf("the run of task %s was told; it ends when its handler returns\n", plain(t.String()))
	case how.Discard:
		a.out.printf("task %s is deleted\n", plain(t.String()))
	default:
		a.out.printf("task %s is archived\n", plain(t.String()))
	}
	return nil
}
