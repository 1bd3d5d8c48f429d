package growth

import (
	"context"
	"fmt"

	"github.com/railtoken/railtoken/bench/internal/lockall"
	"github.com/railtoken/railtoken/bench/internal/noop"
	"github.com/railtoken/railtoken/bench/internal/report"
	"github.com/railtoken/railtoken/bench/internal/server"
)

const (
	crewKeys  = 20
	crewSlots = 2    // of each worker where there are more and more workers
	crewTasks = 1500 // to warm up, and again to be measured
)

func measureWorkers(ctx context.Context, env report.Env) (*report.Section, error) {
	tasks := part(crewTasks, env.Scale, 300)
	slots := crewOver("growth-slots", "Cost of a task over the slots of one worker", "slots", tasks, func(size int) (int, int) { return 1, size })
	slots.sizes = []int{1, 2, 4, 8, 16, 32, 64}
	workers := crewOver("growth-workers", fmt.Sprintf("Cost of a task over the workers with %d slots each", crewSlots), "workers", tasks,
		func(size int) (int, int) { return size, crewSlots })
	workers.sizes = []int{1, 4, 16, 64}
	section := &report.Section{Name: "growth-crew", Title: "What do more slots and more workers bring and cost?"}
	section.Text = fmt.Sprintf("%d tasks that do nothing, over %d keys that follow one another. The workers of the second table have connections of their"+
		" own, as in processes of their own, and share one process to be started quickly. With more slots than keys, most tasks in flight meet"+
		" another one of their key: they wait on deck or in the delay queue, which costs commands. Workers, redis-server and this program share the"+
		" machine's cores, so that the rate cannot grow beyond what these bear.", tasks, crewKeys)
	for _, s := range []series{slots, workers} {
		if !wanted(env, section.Name, s.Table) {
			continue
		}
		err := s.measure(ctx, env)
		section.Tables = append(section.Tables, s.Table)
		section.Charts = append(section.Charts,
			s.chart(s.Name+"-rate", s.Title+": rate", "tasks/s", rate),
			s.chart(s.Name+"-time", s.Title+": time", "µs", client, servers),
			s.chart(s.Name+"-commands", s.Title+": commands", "commands", commands))
		if err != nil {
			return section, err
		}
	}
	return section, nil
}

// crewOver measures tasks done by so many workers with so many slots.
func crewOver(table, title, what string, tasks int, of func(size int) (workers, slots int)) series {
	return series{
		Table: &report.Table{Name: table, Title: title, Columns: append([]string{rate}, costs...)}, what: what, slices: 1,
		open: func(ctx context.Context, at *server.Server, size int) (bench, error) {
			workers, slots := of(size)
			return startCrew(ctx, at, noop.Job{Keys: lockall.Keys(crewKeys), Workers: workers, Slots: slots}, 1, tasks)
		},
	}
}
