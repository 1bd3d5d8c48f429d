package growth

import (
	"context"
	"fmt"

	"github.com/railtoken/railtoken/bench/internal/lockall"
	"github.com/railtoken/railtoken/bench/internal/noop"
	"github.com/railtoken/railtoken/bench/internal/report"
	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/locking"
)

const (
	keySlots  = 8
	keySlices = 8
	keyTasks  = 1000 // of a slice
)

func measureKeys(ctx context.Context, env report.Env) (*report.Section, error) {
	tasks := part(keyTasks, env.Scale, 100)
	s := series{
		Table: &report.Table{Name: "growth-keys", Title: "Cost of a task over the number of keys", Columns: append([]string{rate}, costs...)},
		what:  "keys", sizes: sizes(env.Scale, 10, 100, 1000, 10_000, 100_000), slices: keySlices,
		open: func(ctx context.Context, at *server.Server, size int) (bench, error) {
			names := lockall.Keys(size)
			if err := lockall.Each(ctx, at.Addr(), names, locking.SingleOptions{}, locking.Options{}, lockall.GiveBack(ctx)); err != nil {
				return nil, err
			}
			job := noop.Job{Keys: spread(names, (1+keySlices)*tasks), Workers: 1, Slots: keySlots}
			return startCrew(ctx, at, job, keySlices, tasks)
		},
	}
	section := &report.Section{Name: "growth-keys", Title: "Does a task cost more when there are more keys?"}
	if !wanted(env, section.Name, s.Table) {
		return nil, nil
	}
	section.Text = fmt.Sprintf("One worker with %d slots, default strategy, does %d times %d tasks that do nothing and whose keys follow one another, so that tasks in"+
		" flight have different keys as a rule. All keys have been locked once before, so their fence counters lie in Redis; with more keys than"+
		" tasks, the keys used are spread over all of them. The costs are for one task, from its fetch to its end, asynq's own included, without its"+
		" enqueueing: time by the clock at saturation, commands sent to Redis, and processor time of this process and of redis-server. "+inTurns,
		keySlots, keySlices, tasks)
	err := s.measure(ctx, env)
	s.judge(took, commands, client, servers)
	section.Tables = append(section.Tables, s.Table)
	section.Charts = append(section.Charts,
		s.chart("growth-keys-time", "Time for one task", "µs", took, client, servers),
		s.chart("growth-keys-commands", "Commands for one task", "commands", commands))
	return section, err
}

// spread returns at most so many of the names, at equal distances.
func spread(names []string, most int) []string {
	if len(names) <= most {
		return names
	}
	some := make([]string, most)
	for i := range some {
		some[i] = names[i*len(names)/most]
	}
	return some
}
