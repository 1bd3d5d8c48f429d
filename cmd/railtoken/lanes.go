package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/lanemove"
	"github.com/railtoken/railtoken/internal/lanes"
	lines "github.com/railtoken/railtoken/internal/line"
)

func (a *app) lanesCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "lanes", Short: "move the tasks of queues into lanes", Args: cobra.NoArgs,
		Long: "lanes moves tasks that were enqueued without lanes into the lanes of their keys, while workers with lanes work. Workers\n" +
			"serve both, so a move is for speed alone. See docs/operations.md, \"Moving into lanes\".",
		RunE: func(*cobra.Command, []string) error {
			return errors.New("say what to do: railtoken lanes plan, or railtoken lanes move")
		},
	}
	var queues []string
	var each, yes bool
	var w who
	plan := &cobra.Command{
		Use: "plan", Short: "count what a move would move, and what stays", Args: withUsage(cobra.NoArgs),
		RunE: a.doLong(func(ctx context.Context, _ []string) error { return a.planLanes(ctx, queues, each) }),
	}
	move := &cobra.Command{
		Use: "move", Short: "move tasks into lanes; repeat it after an error", Args: withUsage(cobra.NoArgs),
		Long: "move moves pending, scheduled, retried and archived tasks, and those that wait for keys, into the lanes of their keys.\n" +
			"Places and orders stay, and so do retries, timers and uniqueness locks. It refuses while workers without lanes report.\n" +
			"If it is killed, move again: that goes on where it has ended. It asks first, unless --yes is given.",
		RunE: a.doLong(func(ctx context.Context, _ []string) error { return a.moveLanes(ctx, queues, each, yes, w) }),
	}
	for _, one := range []*cobra.Command{plan, move} {
		one.Flags().StringSliceVar(&queues, "queue", nil, "the `queues`; all if it is left out")
		one.Flags().BoolVar(&each, "each", false, "list each lane, too")
		c.AddCommand(one)
	}
	move.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	w.flags(move)
	return c
}

// queuesOf returns the queues that are meant, without lanes.
func (a *app) queuesOf(ctx context.Context, named []string) ([]string, error) {
	if a.conn.inspector.Lanes() == 0 {
		return nil, errors.New("how many lanes are there to be? Give --lanes or RAILTOKEN_LANES, as the workers have it: 64 for example")
	}
	if len(named) > 0 {
		return named, nil
	}
	all, err := a.conn.tasks.SMembers(ctx, asynqwire.Queues).Result()
	if err != nil {
		return nil, fmt.Errorf("list the queues: %w", err)
	}
	for i, queue := range all {
		all[i] = lanes.Base(queue)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

func (a *app) planLanes(ctx context.Context, named []string, each bool) error {
	queues, err := a.queuesOf(ctx, named)
	if err != nil {
		return err
	}
	var all []*lanemove.Report
	for _, queue := range queues {
		r, err := lanemove.Plan(ctx, lanemove.Options{Engine: (*lines.Engine)(a.conn.inspector.Queue()), Queue: queue})
		if err != nil {
			return err
		}
		all = append(all, r)
	}
	return a.printMoves(all, each, "would move")
}

func (a *app) moveLanes(ctx context.Context, named []string, each, yes bool, by who) error {
	queues, err := a.queuesOf(ctx, named)
	if err != nil {
		return err
	}
	n := a.conn.inspector.Lanes()
	if err := a.confirm(ctx, fmt.Sprintf("Move the tasks of %s into %d lanes? There is no way back.", counted(len(queues), "queue"), n), yes); err != nil {
		return err
	}
	var all []*lanemove.Report
	for _, queue := range queues {
		s := inspect.Steering{Action: inspect.ActionMove, Task: delayqueue.Task{Queue: queue}}
		err := a.audited(ctx, by, s, func(ctx context.Context) (string, error) {
			r, err := lanemove.Run(ctx, lanemove.Options{
				Engine: (*lines.Engine)(a.conn.inspector.Queue()), Queue: queue, Progress: a.progress,
			})
			all = append(all, r)
			return fmt.Sprintf("%d tasks are in lanes", r.Total()+r.Resumed), err
		})
		a.errOut.progress("")
		if err != nil {
			return errors.Join(fmt.Errorf("%w: move again: that goes on where this has ended", err), a.printMoves(all, each, "moved"))
		}
	}
	return a.printMoves(all, each, "moved")
}

// movesJSON is what was moved of a queue, or would be.
type movesJSON struct {
	Queue   string         `json:"queue"`
	Tasks   int            `json:"tasks"`
	Resumed int            `json:"resumed"`
	States  map[string]int `json:"states"`
	Lanes   []int          `json:"lanes"`
	Stays   map[string]int `json:"stays"`
}

func (a *app) printMoves(all []*lanemove.Report, each bool, what string) error {
	if a.json {
		list := make([]movesJSON, len(all))
		for i, r := range all {
			list[i] = movesJSON{r.Queue, r.Total(), r.Resumed, r.Moved, r.Lanes, map[string]int{}}
			for why, n := range r.Stays {
				list[i].Stays[string(why)] = n
			}
		}
		return a.out.json(map[string]any{"queues": list})
	}
	var rows [][]string
	for _, r := range all {
		row := func(n int, what string) { rows = append(rows, []string{plain(r.Queue), strconv.Itoa(n), what}) }
		if r.Resumed > 0 {
			row(r.Resumed, what+": an earlier move had begun with them")
		}
		for _, state := range slices.Sorted(maps.Keys(r.Moved)) {
			row(r.Moved[state], what+": "+state)
		}
		for _, why := range slices.Sorted(maps.Keys(r.Stays)) {
			row(r.Stays[why], "stay: "+string(why))
		}
		for lane, n := range r.Lanes {
			if each && n > 0 {
				row(n, "in lane "+strconv.Itoa(lane))
			}
		}
	}
	a.out.table("There is nothing to move.", "QUEUE TASKS WHAT", rows)
	return nil
}
