// Package shards measures workers whose tasks lie on a Redis Cluster of several masters, and says by a model what more machines would bear.
package shards

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/noop"
	"github.com/railtoken/railtoken/bench/internal/report"
	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/bench/internal/usage"
	"github.com/railtoken/railtoken/internal/keys"
	"github.com/railtoken/railtoken/worker"
)

const (
	most      = 3
	queues    = 6 // a multiple of all numbers of shards
	business  = 1000
	workers   = 2
	perWorker = 8 // slots
	fetchers  = 4
	warm      = 1000
	perRound  = 6000
	runBound  = 2 * time.Minute
)

// The columns.
const (
	rate      = "tasks/s"
	client    = "client µs"
	servers   = "server µs"
	perShard  = "server µs a shard"
	balance   = "busiest shard / mean"
	memory    = "bytes a task"
	predicted = "predicted tasks/s"
	ratio     = "measured / predicted"
)

// standalone is the row of one server that is no cluster.
const standalone = "no cluster"

// Measure measures one, two and three shards and sets the model against them. It returns what it has measured also with an error.
func Measure(ctx context.Context, env report.Env) ([]*report.Section, error) {
	const name = "shards"
	t := &report.Table{
		Name: name, Title: "Tasks on a Redis Cluster",
		Columns: []string{rate, client, servers, perShard, balance, memory, predicted, ratio},
	}
	if env.Run != nil && !env.Run.MatchString(name) && !env.Run.MatchString(modelName) {
		return nil, nil
	}
	cores := runtime.NumCPU()
	section := &report.Section{Name: name, Title: "What do more shards bring?", Tables: []*report.Table{t}}
	section.Text = fmt.Sprintf("%d workers with %d slots and %d fetchers each, in one process, do tasks that do nothing, over %d keys and %d queues, on a"+
		" Redis Cluster of one, two and three masters. All tasks of an asynq queue lie on one shard, as its name is the hash tag: so it takes as many queues"+
		" as shards, and their names are chosen here so that each shard has the same number. Workers and shards all share the %d cores of this machine:"+
		" more shards cannot make it quicker. What can be seen is what a task costs, and whether the shards share it. `predicted tasks/s` is what the"+
		" model below says of shared cores, %d / (client + server), with the costs of one shard in the same round; it takes for granted that no core is ever"+
		" idle. On a cluster several keys cannot be in one script, so that a step of the delay queue takes more commands.",
		workers, perWorker, fetchers, business, queues, cores, cores)
	err := measureShards(ctx, env, t)
	if err != nil {
		return []*report.Section{section}, err
	}
	for _, column := range []string{predicted, ratio} {
		t.Row(standalone).Set(column, "")
	}
	for k := range most {
		row := t.Row(shardName(k + 1))
		for round, got := range row.Values[rate] {
			base := t.Row(shardName(1))
			m := Model{Client: base.Values[client][round], Server: base.Values[servers][round]}
			row.Add(predicted, m.Shared(cores))
			row.Add(ratio, got/m.Shared(cores))
		}
	}
	rates := &report.Chart{File: "shards", Title: t.Title, YLabel: rate}
	for _, column := range []string{rate, predicted} {
		rates.Groups = append(rates.Groups, report.BarsOf(column, t, column))
	}
	section.Charts = append(section.Charts, rates)
	return []*report.Section{section, modelSection(fromTable(t))}, nil
}

// fromTable returns the model of what was measured: the costs of the largest cluster, whose shards are as balanced as these were.
func fromTable(t *report.Table) Model {
	row := t.Row(shardName(most))
	return Model{
		Client: row.Spread(client).Median, Server: row.Spread(servers).Median, Imbalance: row.Spread(balance).Median,
		RTT: modelRTT, Fetchers: fetchers,
	}
}

func shardName(k int) string {
	if k == 1 {
		return "1 shard"
	}
	return fmt.Sprint(k, " shards")
}

// place is where tasks lie.
type place struct {
	name   string
	redis  worker.Redis
	probes []*redis.Client
}

func measureShards(ctx context.Context, env report.Env, t *report.Table) error {
	var places []place
	one, err := server.Start(ctx, env.Dir)
	if err != nil {
		return err
	}
	defer one.Kill()
	places = append(places, place{standalone, worker.Redis{Addr: one.Addr()}, []*redis.Client{one.Probe()}})
	var clusters []*cluster
	defer func() {
		for _, c := range clusters {
			c.kill()
		}
	}()
	for k := 1; k <= most; k++ {
		env.Say("starting a cluster of %d", k)
		c, err := startCluster(ctx, env.Dir, k)
		if err != nil {
			return err
		}
		clusters = append(clusters, c)
		places = append(places, place{shardName(k), worker.Redis{Cluster: c.addrs()}, c.probes()})
	}
	for _, p := range places {
		t.Row(p.name) // in this order
	}
	for round := range env.Reps {
		env.Say("%s, round %d of %d", t.Title, round+1, env.Reps)
		for _, i := range measure.Turns(len(places), round) {
			if err := places[i].measure(ctx, env, t.Row(places[i].name)); err != nil {
				return fmt.Errorf("shards: %s: %w", places[i].name, err)
			}
		}
	}
	return nil
}

// measure does tasks, once what is left of the round before is gone.
func (p place) measure(ctx context.Context, env report.Env, row *report.Row) (err error) {
	ctx, cancel := context.WithTimeout(ctx, runBound)
	defer cancel()
	for _, probe := range p.probes {
		if err := probe.FlushAll(ctx).Err(); err != nil {
			return err
		}
	}
	before, err := p.memory(ctx)
	if err != nil {
		return err
	}
	first, tasks := max(warm*env.Scale/100, 100), max(perRound*env.Scale/100, 200)
	job := noop.Job{
		Redis: p.redis, Queues: queueNames(), Keys: keyNames(), Workers: workers, Slots: perWorker, Fetchers: fetchers,
		Tasks: first + tasks + workers*perWorker,
	}
	if err := job.Enqueue(ctx); err != nil {
		return err
	}
	after, err := p.memory(ctx)
	if err != nil {
		return err
	}
	crew, err := job.Start(ctx, usage.Meter{Servers: p.probes}, nil, first)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, crew.Stop()) }()
	cost, err := crew.Do(ctx, tasks)
	if err != nil {
		return err
	}
	loads := make([]float64, len(cost.Servers))
	for i, d := range cost.Servers {
		loads[i] = d.Seconds()
	}
	row.Add(rate, cost.Rate())
	row.Add(client, cost.Micros(cost.Client))
	row.Add(servers, cost.Micros(cost.ServerTime()))
	row.Add(perShard, cost.Micros(cost.ServerTime())/float64(len(loads)))
	row.Add(balance, imbalance(loads))
	row.Add(memory, (after-before)/float64(job.Tasks))
	return nil
}

// memory returns what all nodes have allocated.
func (p place) memory(ctx context.Context) (float64, error) {
	total := 0.0
	for _, probe := range p.probes {
		bytes, _, err := usage.Memory(ctx, probe)
		if err != nil {
			return 0, err
		}
		total += bytes
	}
	return total, nil
}

// queueNames returns queues of which each n-th part of the hash slots has the same number, for all n that divide it.
func queueNames() []string {
	names := make([]string, queues)
	for i, found := 0, 0; found < queues; i++ {
		name := fmt.Sprint("queue-", i)
		if at := keys.Slot("{"+name+"}") * queues / slots; names[at] == "" {
			names[at] = name
			found++
		}
	}
	return names
}

func keyNames() []string {
	names := make([]string, business)
	for i := range names {
		names[i] = fmt.Sprintf("order-%06d", i)
	}
	return names
}
