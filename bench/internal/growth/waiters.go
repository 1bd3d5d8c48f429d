package growth

import (
	"context"
	"fmt"

	"github.com/railtoken/railtoken/bench/internal/report"
	"github.com/railtoken/railtoken/middleware"
)

const (
	waitSlices = 8
	waitLives  = 60  // of a slice
	waitCalls  = 200 // of a slice
)

func measureWaiters(ctx context.Context, env report.Env) (*report.Section, error) {
	lives, n := part(waitLives, env.Scale, 10), part(waitCalls, env.Scale, 10)
	depths := sizes(env.Scale, 1, 10, 100, 1000, 10_000)
	section := &report.Section{Name: "growth-waiters", Title: "Does a task cost more when more tasks wait for its key?"}
	section.Text = fmt.Sprintf("So many tasks wait for one key all the time. The first tables tell what a task costs for its whole life, over %d times %d lives: it is"+
		" enqueued, refused, parked, woken by the one before it, run and given its key back; each task lets the next one come, enqueues another, waits"+
		" until the one that came is parked, and ends, so that the number of those who wait stays the same. Nobody is on deck (`Standby: -1`), else the"+
		" line would be left out, and the parked tasks' own timers are far off (`Delay: 10 min`). The last tables tell what single calls of the"+
		" delay queue cost at that depth, made %d times %d times in turn by one caller: Park and Wake of one task, and in order Enqueue, Turn of one that must"+
		" wait, and LeaveLine of the first. Their times are medians by the clock; the last columns are those of one"+
		" call of each together. `commands` are those sent to Redis. LeaveLine looks at the next two in line, of which there is but one behind the only"+
		" waiter. "+inTurns,
		waitSlices, lives, waitSlices, n)
	tables := []series{
		life("growth-waiters-next", "A task's life, default order", middleware.BestEffort, lives),
		life("growth-waiters-ordered", "A task's life, `FIFO`", middleware.FIFO, lives),
	}
	for _, s := range tables {
		s.sizes = depths
		if !wanted(env, section.Name, s.Table) {
			continue
		}
		err := s.measure(ctx, env)
		s.judge(took, commands, client, servers)
		section.Tables = append(section.Tables, s.Table)
		section.Charts = append(section.Charts,
			s.chart(s.Name+"-time", s.Title+": time", "µs", took, client, servers),
			s.chart(s.Name+"-commands", s.Title+": commands", "commands", commands))
		if err != nil {
			return section, err
		}
	}
	for _, c := range []struct {
		series
		names []string
	}{
		{calls("growth-calls-next", "Calls of the delay queue, default order", callsNext, n, openNext), callsNext},
		{calls("growth-calls-ordered", "Calls of the delay queue, in order", callsInOrder, n, openOrdered), callsInOrder},
	} {
		c.sizes = depths
		if !wanted(env, section.Name, c.Table) {
			continue
		}
		err := c.measure(ctx, env)
		var times []string
		for _, name := range c.names {
			times = append(times, name+" "+took)
		}
		c.judge(took, commands, servers)
		section.Tables = append(section.Tables, c.Table)
		section.Charts = append(section.Charts, c.chart(c.Name, c.Title, "µs", append(times, servers)...))
		if err != nil {
			return section, err
		}
	}
	return section, nil
}
