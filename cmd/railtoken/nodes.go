package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/railtoken/railtoken/inspect"
)

// nodeJSON is one lock server.
type nodeJSON struct {
	Addr    string  `json:"addr"`
	Votes   bool    `json:"votes"`
	Reason  string  `json:"reason,omitempty"`
	VotesIn float64 `json:"votes_in_seconds,omitempty"`
	Version string  `json:"version,omitempty"`
	Role    string  `json:"role,omitempty"`
	Uptime  float64 `json:"uptime_seconds"`
	Latency float64 `json:"latency_ms"`
	Skew    float64 `json:"clock_ahead_ms"`
}

func (a *app) nodesCommand() *cobra.Command {
	return &cobra.Command{
		Use: "nodes", Short: "list the lock servers: votes, quarantines, latencies, clocks", Args: cobra.NoArgs,
		Long: "nodes asks each lock server whether it may vote, as a worker that has just started would. Exit status 2 says that one\n" +
			"of them does not.",
		RunE: a.do(func(ctx context.Context, _ []string) error { return a.nodes(ctx) }),
	}
}

func (a *app) nodes(ctx context.Context) error {
	found, err := a.conn.inspector.Nodes(ctx)
	if err != nil {
		return err
	}
	all := make([]nodeJSON, len(found))
	rows := make([][]string, len(found))
	for i, n := range found {
		all[i] = nodeOf(n)
		vote, in := "yes", "-"
		if !all[i].Votes {
			vote, err = "no: "+all[i].Reason, errFound
		}
		if n.VotesIn > 0 {
			in = brief(n.VotesIn)
		}
		rows[i] = []string{
			n.Addr, or(n.Role), or(n.Version), brief(n.Uptime), fmt.Sprintf("%.1fms", all[i].Latency),
			fmt.Sprintf("%+.0fms", all[i].Skew), in, vote,
		}
	}
	if a.json {
		return cmp.Or(a.out.json(map[string]any{"nodes": all}), err)
	}
	a.out.table("There is no lock server.", "ADDR ROLE VERSION UP LATENCY CLOCK VOTES-IN VOTES", rows)
	return err
}

func nodeOf(n inspect.Node) nodeJSON {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	one := nodeJSON{
		Addr: n.Addr, Votes: n.Err == nil && n.Refused == "", Reason: n.Refused, VotesIn: n.VotesIn.Seconds(), Version: n.Version,
		Role: n.Role, Uptime: n.Uptime.Seconds(), Latency: ms(n.Latency), Skew: ms(n.Skew),
	}
	if n.Err != nil {
		one.Reason = n.Err.Error()
	}
	return one
}
