package main

import (
	"context"
	"fmt"
	"time"

	"github.com/railtoken/railtoken/bench/internal/contestant"
	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/server"
)

const (
	healthy = "healthy "
	outage  = "outage "
)

// settle is how long a contestant works on servers that have come back, before the next ones go.
const settle = 200 * time.Millisecond

// outages measures one caller on five servers of which one does not serve, against as many healthy ones, in the same rounds.
// Of the broken servers another one is paused in each round; or else the first one is killed for good.
func (b *bench) outages(ctx context.Context, table *Table, whole, broken []*server.Server, pause bool) error {
	well, endWell, err := openAll(contestant.FiveNodes, addrs(whole))
	if err != nil {
		return err
	}
	defer endWell()
	ill, endIll, err := openAll(contestant.FiveNodes, addrs(broken))
	if err != nil {
		return err
	}
	defer endIll()

	table.Columns = []string{healthy + p50, outage + p50, healthy + p99, outage + p99}
	hangs := make([]<-chan struct{}, len(ill)) // closed when what hung in the last round has ended
	for i, o := range ill {
		table.row(o.name)
		_, left := o.pairs(ctx, measure.Load{Callers: 1, For: settle})
		hangs[i] = closedAfter(left)
	}
	if !pause {
		broken[0].Kill()
	}
	for round := range b.outageReps {
		if pause {
			for i, o := range ill {
				<-hangs[i]
				_, left := o.pairs(ctx, measure.Load{Callers: 1, For: settle})
				left()
			}
			if err := broken[round%len(broken)].Pause(); err != nil {
				return err
			}
		}
		for _, i := range measure.Turns(len(ill), round) {
			row := table.row(ill[i].name)
			sample, left := well[i].pairs(ctx, measure.Load{Callers: 1, Warm: b.outageSlice / 5, For: b.outageSlice})
			left()
			addSample(row, sample, healthy)
			select {
			case <-hangs[i]:
				sample, left = ill[i].pairs(ctx, measure.Load{Callers: 1, For: b.outageSlice})
				hangs[i] = closedAfter(left)
			default: // its caller hangs on the killed server ever since the last round
				sample = measure.Sample{Latencies: []time.Duration{b.outageSlice}, Unfinished: 1}
			}
			addSample(row, sample, outage)
			if sample.Done == 0 {
				row.Note = fmt.Sprintf("some slices of %v ended without a single pair: their times are at least that", b.outageSlice)
			}
		}
		if pause {
			if err := broken[round%len(broken)].Resume(); err != nil {
				return err
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

func closedAfter(f func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return done
}

// awaitAge returns when the servers are as old as the contestants want them.
func (b *bench) awaitAge(ctx context.Context, servers []*server.Server) error {
	var want time.Duration
	for _, kind := range contestant.FiveNodes {
		want = max(want, kind.Aged)
	}
	if want > 0 {
		want += 2 * time.Second // the server counts whole seconds
	}
	for _, s := range servers {
		for {
			age, err := s.Age(ctx)
			if err != nil {
				return err
			}
			if age >= want {
				break
			}
			b.say("the servers are to be %v old: %v more", want, want-age)
			select {
			case <-time.After(want - age):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

func addrs(servers []*server.Server) []string {
	all := make([]string, len(servers))
	for i, s := range servers {
		all[i] = s.Addr()
	}
	return all
}

// fleet starts n servers.
func fleet(ctx context.Context, dir string, n int) (servers []*server.Server, err error) {
	for range n {
		s, err := server.Start(ctx, dir)
		if err != nil {
			end(servers)
			return nil, err
		}
		servers = append(servers, s)
	}
	return servers, nil
}

func end(servers []*server.Server) {
	for _, s := range servers {
		s.Kill()
	}
}
