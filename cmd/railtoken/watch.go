package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/railtoken/railtoken/inspect"
)

// soonest is the shortest interval between two looks, so that nobody floods Redis.
const soonest = 200 * time.Millisecond

func (a *app) watchCommand() *cobra.Command {
	every, n := time.Second, 0
	c := &cobra.Command{
		Use: "watch KEY", Short: "print a line whenever the holder or the waiters of a key change", Args: cobra.ExactArgs(1),
		ValidArgsFunction: a.completeKeys,
		Long:              "watch looks at a key at an interval, and prints what has changed. Changes in between are not seen. Ctrl-C ends it.",
		RunE: a.doLong(func(ctx context.Context, args []string) error {
			return a.watch(ctx, a.keyOf(args[0]), every, n)
		}),
	}
	c.Flags().DurationVar(&every, "every", every, "the interval, at least 200ms")
	c.Flags().IntVarP(&n, "count", "n", n, "end after this `number` of looks; never when 0")
	return c
}

func (a *app) topCommand() *cobra.Command {
	every, n := 2*time.Second, 0
	c := &cobra.Command{
		Use: "top", Short: "show workers and the most wanted keys, and refresh", Args: cobra.NoArgs,
		Long: "top shows what is held and what waits, and refreshes it. Ctrl-C ends it. Without a terminal, or with -n, it prints one\n" +
			"snapshot after another; without a terminal and without -n, it prints only one.",
		RunE: a.doLong(func(ctx context.Context, _ []string) error { return a.top(ctx, every, n) }),
	}
	c.Flags().DurationVar(&every, "every", every, "the interval, at least 200ms")
	c.Flags().IntVarP(&n, "count", "n", n, "end after this `number` of snapshots; never when 0")
	return c
}

// repeat calls look at an interval, n times or until ctx ends, which is no error. A look that fails is reported, and the
// next one is still made: Redis may come back.
func (a *app) repeat(ctx context.Context, every time.Duration, n int, look func(context.Context) error) error {
	if every < soonest {
		return fmt.Errorf("--every is %v: it must be at least %v", every, soonest)
	}
	if n < 0 {
		return fmt.Errorf("--count is %d: it cannot be negative", n)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for i := 1; ; i++ {
		looking, cancel := context.WithTimeout(ctx, a.timeout)
		err := look(looking)
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			if n == 1 {
				return err
			}
			a.errOut.failure(a.hidden(err.Error()))
		}
		if i == n {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (a *app) watch(ctx context.Context, key string, every time.Duration, n int) error {
	before := ""
	return a.repeat(ctx, every, n, func(ctx context.Context) error {
		k, err := a.conn.inspector.Look(ctx, key, 1)
		if err != nil {
			return err
		}
		now := a.oneLine(k)
		if now == before {
			return nil
		}
		before = now
		if a.json {
			return a.out.json(a.stateJSON(k, nil))
		}
		a.out.printf("%s  %s\n", time.Now().Format("15:04:05.000"), now)
		return nil
	})
}

// oneLine says who holds a key and who waits. It changes only when they do.
func (a *app) oneLine(k inspect.KeyState) string {
	holder := "free"
	if h := k.Holder; h != nil {
		holder = "held by " + or(strings.TrimSpace(h.Label))
		if h.Task != nil {
			holder = "held by task " + plain(h.Task.Task.String())
		}
	}
	next := ""
	if len(k.Waiters) > 0 {
		next = ", next is " + plain(k.Waiters[0].Task.String())
	}
	return fmt.Sprintf("%s, waiters %d%s", holder, k.Waiting, next)
}

func (a *app) top(ctx context.Context, every time.Duration, n int) error {
	screen := a.out.screen()
	if a.json {
		screen = nil
	}
	if screen == nil && n == 0 {
		n = 1
	}
	lines := 20
	return a.repeat(ctx, every, n, func(ctx context.Context) error {
		rows, err := a.readKeys(ctx, 100, false)
		if err != nil {
			return err
		}
		workers, err := a.conn.inspector.Workers(ctx)
		if err != nil {
			return err
		}
		waiting, err := a.conn.inspector.Queue().Inspector().Count(ctx)
		if err != nil {
			return err
		}
		if screen != nil {
			if _, height, err := term.GetSize(int(screen.Fd())); err == nil {
				lines = max(height-6, 3)
			}
			a.out.clear()
		}
		return a.picture(rows, workers, waiting, lines)
	})
}

// picture prints one picture of top.
func (a *app) picture(rows []*keyRow, workers []inspect.Worker, waiting, lines int) error {
	slots, running, inSlots, held := 0, 0, 0, 0
	for _, w := range workers {
		slots, running, inSlots, held = slots+w.Slots, running+w.Running, inSlots+w.Waiting, held+w.Keys
	}
	rows = busiest(rows, lines)
	if a.json {
		return a.out.json(map[string]any{
			"at": time.Now().UTC(), "workers": len(workers), "slots": slots, "running": running, "waiting_in_slots": inSlots,
			"keys_held": held, "waiters": waiting, "keys": rows,
		})
	}
	a.out.printf("%s  workers %d, slots busy %d of %d (waiting there %d), keys held %d, tasks waiting %d\n\n",
		time.Now().Format("15:04:05"), len(workers), running, slots, inSlots, held, waiting)
	a.keyTable(rows)
	return nil
}
