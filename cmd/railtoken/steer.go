package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/inspect"
)

// who is the operator, for the audit.
type who struct{ by, why string }

func (w *who) flags(c *cobra.Command) {
	c.Flags().StringVar(&w.why, "why", "", "the reason, for the audit")
	c.Flags().StringVar(&w.by, "by", "", "the operator's name, for the audit (default: the user of this machine)")
}

// audited does something, and records who has done it.
func (a *app) audited(ctx context.Context, w who, s inspect.Steering, do func(context.Context) (string, error)) error {
	s.By, s.Why = w.by, strings.TrimSpace(w.why)
	if s.By == "" {
		s.By = whoami()
	}
	return a.conn.inspector.Audited(ctx, s, do)
}

func (a *app) wakeCommand() *cobra.Command {
	n := 1
	var w who
	c := &cobra.Command{
		Use: "wake KEY", Short: "wake the next task that waits for a key", Args: cobra.ExactArgs(1),
		Long: "wake moves the next waiter of a key that can run to the head of its queue, as a release does. If the key is\n" +
			"held, the task is refused and waits again: that does no harm. Entries without a task are removed.\n" +
			"If the tasks of the key run in order, it wakes the head of their sequence, or says why that cannot run.",
		ValidArgsFunction: a.completeKeys,
		RunE:              a.do(func(ctx context.Context, args []string) error { return a.wake(ctx, a.keyOf(args[0]), n, w) }),
	}
	w.flags(c)
	c.Flags().IntVarP(&n, "most", "n", n, "the `number` of tasks to wake, at most 100")
	return c
}

func (a *app) wake(ctx context.Context, key string, n int, w who) error {
	if n < 1 || n > 100 {
		return fmt.Errorf("--most is %d: it must be from 1 to 100", n)
	}
	var woken delayqueue.Woken
	var names []string
	why := ""
	err := a.audited(ctx, w, inspect.Steering{Action: inspect.ActionWake, Key: key}, func(ctx context.Context) (result string, err error) {
		woken, err = a.conn.inspector.Queue().Wake(ctx, key, delayqueue.WakeOptions{Most: n})
		if err == nil && woken.Head != (delayqueue.Task{}) {
			return "", a.unableHead(ctx, woken.Head)
		}
		names = make([]string, len(woken.Tasks))
		for i, t := range woken.Tasks {
			names[i] = t.String()
		}
		return "woken: " + or(strings.Join(names, ", ")), err
	})
	if err != nil {
		return err
	}
	if len(names) == 0 && woken.Left > 0 {
		if why, err = a.unableFirst(ctx, key); err != nil {
			return err
		}
	}
	if a.json {
		return a.out.json(map[string]any{"woken": names, "left": woken.Left, "pending": woken.Pending, "why": why})
	}
	switch {
	case len(names) > 0:
		a.out.printf("woken: %s; %d waiting\n", strings.Join(names, ", "), woken.Left)
	case woken.Left > 0:
		a.out.printf("no task can be woken now; %d waiting, the first is %s\n", woken.Left, or(why))
	default:
		a.out.printf("no task waits for this key\n")
	}
	return nil
}

// unableFirst says why the first waiter of a key was not woken; empty if it has gone on.
func (a *app) unableFirst(ctx context.Context, key string) (string, error) {
	first, err := a.conn.inspector.Queue().Inspector().Waiters(ctx, key, 1)
	if err != nil || len(first) == 0 {
		return "", err
	}
	e, err := a.explanation(ctx, first[0].Task)
	if err != nil {
		return "", err
	}
	why := strings.TrimSuffix(e.Task+": "+e.Why+". "+e.Remedy, ". ")
	if a.hash {
		why = hideIn(why, key)
	}
	return why, nil
}

// unableHead says why the head of a sequence was not woken.
func (a *app) unableHead(ctx context.Context, head delayqueue.Task) error {
	e, err := a.explanation(ctx, head)
	if err != nil {
		return err
	}
	a.shown[e.Key] = true
	err = fmt.Errorf("no task was woken: the tasks of this key run in order, and it is the turn of %s: %s; it is to run %s",
		head, e.Why, e.Expected)
	if e.Remedy != "" {
		err = fmt.Errorf("%w. %s", err, e.Remedy)
	}
	return err
}

func (a *app) putFirstCommand() *cobra.Command {
	return a.reorderCommand("first", "make a waiting task the next one of its key", inspect.ActionPutFirst, (*delayqueue.Inspector).PutFirst)
}

func (a *app) putLastCommand() *cobra.Command {
	return a.reorderCommand("last", "put a waiting task behind all others of its key", inspect.ActionPutLast, (*delayqueue.Inspector).PutLast)
}

// put reorders the waiters of a key.
type put func(i *delayqueue.Inspector, ctx context.Context, key string, t delayqueue.Task) error

func (a *app) reorderCommand(place, short string, action inspect.Action, to put) *cobra.Command {
	var w who
	c := &cobra.Command{
		Use: "put-" + place + " TASK", Short: short, Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeTasks,
		RunE: a.do(func(ctx context.Context, args []string) error { return a.reorder(ctx, args[0], place, action, w, to) }),
	}
	w.flags(c)
	return c
}

func (a *app) reorder(ctx context.Context, arg, place string, action inspect.Action, by who, to put) error {
	t, err := a.taskOf(ctx, arg)
	if err != nil {
		return err
	}
	inspector := a.conn.inspector.Queue().Inspector()
	w, err := inspector.Find(ctx, t)
	if err != nil {
		return err
	}
	a.shown[w.Key] = true
	sequence, err := inspector.Sequence(ctx, w.Key, 1)
	if err != nil {
		return err
	}
	if len(sequence) > 0 {
		return fmt.Errorf("the tasks of key %s run in order, which put-%s does not change", a.key(w.Key), place)
	}
	err = a.audited(ctx, by, inspect.Steering{Action: action, Key: w.Key, Task: t}, func(ctx context.Context) (string, error) {
		return "now the " + place + " that waits for the key", to(inspector, ctx, w.Key, t)
	})
	if err != nil {
		return err
	}
	if a.json {
		return a.out.json(map[string]any{"task": t.String(), "key": a.jsonKey(w.Key).Key, "put": place})
	}
	a.out.printf("task %s is now the %s that waits for key %s\n", plain(t.String()), place, a.key(w.Key))
	return nil
}

func (a *app) dropCommand() *cobra.Command {
	yes := false
	var w who
	c := &cobra.Command{
		Use: "drop TASK", Short: "delete a waiting task", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeTasks,
		Long: "drop permanently deletes a task that waits for a key, or one for which the others of its key wait in order\n" +
			"until it is retried. It asks first, unless --yes is given. If tasks run in order, the next one is woken.",
		RunE: a.doLong(func(ctx context.Context, args []string) error { return a.drop(ctx, args[0], yes, w) }),
	}
	w.flags(c)
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}

func (a *app) drop(ctx context.Context, arg string, yes bool, by who) error {
	t, err := a.taskOf(ctx, arg)
	if err != nil {
		return err
	}
	inspector := a.conn.inspector.Queue().Inspector()
	w, err := inspector.Find(ctx, t)
	if err != nil {
		return err
	}
	a.shown[w.Key] = true
	question := fmt.Sprintf("Delete task %s, which has waited for key %s for %s?", plain(t.String()), a.key(w.Key), ago(w.Since))
	if w.Failed {
		question = fmt.Sprintf("Delete task %s of key %s, which has failed and would run again in %s?", plain(t.String()), a.key(w.Key),
			brief(time.Until(w.Next)))
	}
	if err := a.confirm(ctx, question, yes); err != nil {
		return err
	}
	err = a.audited(ctx, by, inspect.Steering{Action: inspect.ActionDrop, Key: w.Key, Task: t}, func(ctx context.Context) (string, error) {
		return "deleted", inspector.Drop(ctx, t)
	})
	if err != nil {
		return err
	}
	if a.json {
		return a.out.json(map[string]any{"task": t.String(), "key": a.jsonKey(w.Key).Key, "dropped": true})
	}
	a.out.printf("task %s is deleted\n", plain(t.String()))
	return nil
}

// canAsk reports whether there is a terminal to ask at.
func (a *app) canAsk() bool {
	file, ok := a.in.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// confirm asks a question on a terminal. Without one, --yes is needed.
func (a *app) confirm(ctx context.Context, question string, yes bool) error {
	if yes {
		return nil
	}
	if !a.canAsk() {
		return errors.New("this cannot be undone: give --yes, because there is no terminal to ask at")
	}
	a.errOut.printf("%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() { // it ends with the process, if nobody answers
		text, err := bufio.NewReader(a.in).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			text = ""
		}
		answer <- strings.ToLower(strings.TrimSpace(text))
	}()
	select {
	case text := <-answer:
		if text == "y" || text == "yes" {
			return nil
		}
		return errors.New("nothing was changed")
	case <-ctx.Done():
		a.errOut.printf("\n")
		return ctx.Err()
	}
}
