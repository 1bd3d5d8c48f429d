package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// The size of the demo: the busiest of its keys has some 2.5 s of work.
const demoOrders = 150

// demoCancel is which of its orders are cancelled: one of so many.
const demoCancel = 10

var demoWork = span{30 * time.Millisecond, 70 * time.Millisecond}

// demo makes the same run twice, without locks and with them, and compares the two.
func (p *program) demo(ctx context.Context) (int, error) {
	orders, source, err := p.load()
	if err != nil {
		return exitWrong, err
	}
	fmt.Fprintf(p.out, "%d orders (%s) make %d tasks: each order is audited and allocated, by tasks of two types in two queues.\n"+
		"A task reads its order, works for %v to %v, and writes the order back. An allocation does the same\n"+
		"to the sellers of the order, some of which are in great demand. Some orders are cancelled, which stops their allocation.\n",
		len(orders), source, tasksOf(len(orders), p.Cancel), p.Work.Min, p.Work.Max)
	fmt.Fprintf(p.out, "%d workers with %d slots each; Redis: %s.\n", p.Workers, p.slots(p.env), p.redisName())

	p.headline("1. Without locks")
	without, _, err := p.half(ctx, orders, true)
	if err != nil {
		return exitWrong, err
	}
	if status := without.stopStatus(); status != exitOK {
		without.print(p.out)
		return status, nil
	}
	fmt.Fprintf(p.out, "done in %s\n", readable(without.Duration))

	p.headline("2. With railtoken: a task holds the locks of its order and its sellers, all or none")
	with, r, err := p.half(ctx, orders, false)
	if err != nil {
		return exitWrong, err
	}
	if with.stopStatus() != exitOK {
		with.print(p.out)
		return with.status(), nil
	}
	fmt.Fprintf(p.out, "done in %s\n\n", readable(with.Duration))
	compare(p.out, without, with)
	if least := idealOf(with.Seen.Holds); least.Tasks > 0 {
		fmt.Fprintf(p.out, "\n%s\n", least.describe(r.ID.business(least.Key), with.Duration, p.embedded))
	}
	with.printVerdict(p.out)
	return with.status(), p.writeTimeline(with, r)
}

func (p *program) headline(text string) {
	fmt.Fprintf(p.out, "\n%s\n%s\n", text, strings.Repeat("-", len(text)))
}

// half makes one of the two runs.
func (p *program) half(ctx context.Context, orders []order, noLock bool) (*report, *run, error) {
	r, err := p.prepare(orders, noLock)
	if err != nil {
		return nil, nil, err
	}
	rep, err := p.do(ctx, r)
	return rep, r, err
}

// verdict says in a word whether everything went well.
func (r *report) verdict() string {
	if len(r.faults()) > 0 {
		return "WRONG"
	}
	return "OK"
}

// compare writes what was found without locks beside what was found with them.
func compare(out io.Writer, without, with *report) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, a, b any) { fmt.Fprintf(t, "%s\t%v\t%v\t\n", padded(name), a, b) }
	row("", "without locks", "with railtoken")
	row("tasks done", without.Done, with.Done)
	row("stopped by a cancellation", without.Superseded, with.Superseded)
	row("tasks lost", without.Lost, with.Lost)
	row("overlaps: two tasks on one key", without.overlaps(), with.overlaps())
	row("lost updates", without.Balance.Lost, with.Balance.Lost)
	row("double effects", without.Balance.Doubled, with.Balance.Doubled)
	row("conflicts: waited in a worker slot", "-", with.Met.InSlot)
	row("           parked, the slot free", "-", with.Met.Parked)
	row("longest wait for the keys", "-", readable(with.Met.Durations.percentile(100)))
	row("duration", readable(without.Duration), readable(with.Duration))
	row("verdict", without.verdict(), with.verdict())
	_ = t.Flush() // a table that cannot be written is no reason to end
}
