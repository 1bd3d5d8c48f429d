package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// workerJSON is the last report of a worker.
type workerJSON struct {
	ID        string         `json:"id"`
	Host      string         `json:"host"`
	PID       int            `json:"pid"`
	Version   string         `json:"version,omitempty"`
	Config    string         `json:"config,omitempty"`
	Since     time.Time      `json:"since"`
	Seen      time.Time      `json:"seen"`
	Queues    map[string]int `json:"queues"`
	Slots     int            `json:"slots"`
	Running   int            `json:"running"`
	Waiting   int            `json:"waiting_in_slots"`
	Conflicts int64          `json:"conflicts"`
	Keys      int            `json:"keys_held"`
}

func (a *app) workersCommand() *cobra.Command {
	return &cobra.Command{
		Use: "workers", Short: "list workers: slots, keys, versions, configurations", Args: cobra.NoArgs,
		RunE: a.do(func(ctx context.Context, _ []string) error { return a.workers(ctx) }),
	}
}

func (a *app) workers(ctx context.Context) error {
	all, err := a.conn.inspector.Workers(ctx)
	if err != nil {
		return err
	}
	if a.json {
		list := make([]workerJSON, len(all))
		for i, w := range all {
			list[i] = workerJSON{
				w.ID, w.Host, w.PID, w.Version, w.Config, w.Since.UTC(), w.Seen.UTC(), w.Queues, w.Slots, w.Running, w.Waiting,
				w.Conflicts, w.Keys,
			}
		}
		return a.out.json(map[string]any{"workers": list})
	}
	rows := make([][]string, len(all))
	versions, configs := map[string]bool{}, map[string]bool{}
	for i, w := range all {
		versions[w.Version], configs[w.Config] = true, true
		queues := slices.Sorted(maps.Keys(w.Queues))
		rows[i] = []string{
			w.Host + "/" + strconv.Itoa(w.PID), ago(w.Since), ago(w.Seen), fmt.Sprintf("%d/%d", w.Running, w.Slots),
			strconv.Itoa(w.Waiting), strconv.Itoa(w.Keys), strconv.FormatInt(w.Conflicts, 10), or(w.Version), or(w.Config),
			strings.Join(queues, ","),
		}
	}
	none := "No worker reports. Workers report every 5 s, unless DisableReports is set."
	a.out.table(none, "WORKER UP SEEN SLOTS WAITING KEYS CONFLICTS VERSION CONFIG QUEUES", rows)
	if len(versions) > 1 || len(configs) > 1 {
		a.out.printf("\nWorkers differ in version or configuration: see railtoken doctor.\n")
	}
	return nil
}
