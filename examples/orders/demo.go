package main

import (
	"context"
	"fmt"
	"strings"
)

// demo makes the same run twice: without locks, to show what goes wrong, and with them.
func (p *program) demo(ctx context.Context) (int, error) {
	orders, source, err := p.load()
	if err != nil {
		return exitWrong, err
	}
	fmt.Fprintf(p.out, "%d orders (%s). Each is audited and allocated: two tasks of different types, in different queues.\n"+
		"Both read the order, work a while and write it back; an allocation does the same to its sellers, a few of which are hot.\n",
		len(orders), source)

	p.headline("1. Without locks")
	without, err := p.half(ctx, orders, true)
	if err != nil {
		return exitWrong, err
	}
	if status := without.stopStatus(); status != exitOK {
		return status, nil
	}

	p.headline("2. With railtoken: the order and its sellers are locked, all or nothing")
	with, err := p.half(ctx, orders, false)
	if err != nil {
		return exitWrong, err
	}
	if with.Stopped == nil {
		fmt.Fprintf(p.out, "\nThe same %d tasks: %d overlaps and %d lost updates without locks, %d and %d with them.\n",
			with.Enqueued, without.overlaps(), without.Balance.Lost, with.overlaps(), with.Balance.Lost)
	}
	return with.status(), nil
}

func (p *program) headline(text string) {
	fmt.Fprintf(p.out, "\n%s\n%s\n", text, strings.Repeat("-", len(text)))
}

// half makes one of the two runs. The timeline that stays is that of the second.
func (p *program) half(ctx context.Context, orders []order, noLock bool) (*report, error) {
	r, err := p.prepare(orders, noLock)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(p.out, "%s\n\n", p.describe(r))
	rep, err := p.do(ctx, r)
	if err != nil {
		return nil, err
	}
	rep.print(p.out)
	if noLock {
		return rep, nil
	}
	return rep, p.writeTimeline(rep, r)
}
