package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/railtoken/railtoken/inspect"
)

func (a *app) deposeCommand() *cobra.Command {
	var d inspect.Deposition
	yes := false
	c := &cobra.Command{
		Use: "depose KEY", Short: "take a key away from a holder that hangs", Args: cobra.ExactArgs(1),
		SuggestFor:        []string{"unlock", "force-unlock", "free", "release", "steal"},
		ValidArgsFunction: a.completeKeys,
		Long: "depose takes a key from its holder: it raises the fencing token, ends the holder's context, frees the key and wakes\n" +
			"the next task. It asks first, unless --yes is given; then --expect must name the owner that look has shown.\n\n" +
			"The task of the holder has failed, as after any lost lease, and asynq retries it. A handler that ignores its\n" +
			"context goes on working: check first that it may run beside the next task, or stop its process.\n\n" +
			"A holder that is paused may write until the next holder has claimed the resource. A program can close that gap: see\n" +
			"Floor of inspect.Deposition.",
		RunE: a.doLong(func(ctx context.Context, args []string) error { return a.depose(ctx, a.keyOf(args[0]), d, yes) }),
	}
	c.Flags().StringVar(&d.Expect, "expect", "", "the `owner` that look has shown; it must still hold the key")
	c.Flags().StringVar(&d.Why, "why", "", "the reason, for the audit and the holder's error")
	c.Flags().StringVar(&d.By, "by", "", "the operator's name, for the audit (default: the user of this machine)")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}

func (a *app) depose(ctx context.Context, key string, d inspect.Deposition, yes bool) error {
	k, err := a.conn.inspector.Look(ctx, key, 0)
	if err != nil {
		return err
	}
	if err := a.missing(d, yes, k.Holder); err != nil {
		return err
	}
	if d.By == "" {
		d.By = whoami()
	}
	if d.Expect == "" {
		if k.Holder == nil {
			return errors.New("the key is free: there is no holder to depose")
		}
		d.Expect = k.Holder.Owner
	}
	if h := k.Holder; h != nil && h.Backend != "" {
		return fmt.Errorf("task %s holds the key in another store (%s), where depose cannot take it: stop the process of its "+
			"worker, %s/%d", plain(h.Task.Task.String()), h.Backend, h.Task.Host, h.Task.PID)
	}
	question := "Take key " + a.key(key) + " away from owner " + d.Expect + "?"
	if h := k.Holder; h != nil && h.Owner == d.Expect {
		name := h.Label
		if h.Task != nil {
			name = "task " + h.Task.Task.String()
		}
		question = fmt.Sprintf("Take key %s away from %s, which has held it for %s? %d tasks wait.", a.key(key), or(name),
			ago(h.Since), k.Waiting)
	}
	if err := a.confirm(ctx, question, yes); err != nil {
		return err
	}
	floor, err := a.conn.inspector.Depose(ctx, key, d)
	if err != nil {
		return err
	}
	if a.json {
		return a.out.json(map[string]any{"key": a.jsonKey(key).Key, "owner": d.Expect, "floor": floor})
	}
	a.out.printf("key %s is free; fencing tokens below %d are those of the deposed holder and earlier ones\n",
		a.key(key), floor)
	return nil
}

// missing names all flags that a deposition lacks.
func (a *app) missing(d inspect.Deposition, yes bool, h *inspect.Holder) error {
	var flags []string
	if strings.TrimSpace(d.Why) == "" {
		flags = append(flags, "--why REASON, for the audit and the holder's error")
	}
	if !yes && !a.canAsk() {
		flags = append(flags, "--yes, because there is no terminal to ask at")
		yes = true
	}
	switch {
	case !yes || d.Expect != "":
	case h == nil || h.Backend != "":
		flags = append(flags, "--expect OWNER, which railtoken look shows")
	default:
		flags = append(flags, fmt.Sprintf("--expect OWNER, which is %s now (%s)", h.Owner, or(cmp.Or(nameOf(h.Running), h.Label))))
	}
	if len(flags) == 0 {
		return nil
	}
	return errors.New("depose needs " + strings.Join(flags, "; "))
}

// whoami returns the user of this machine.
func whoami() string {
	name := "uid " + strconv.Itoa(os.Getuid())
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}
