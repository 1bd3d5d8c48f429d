package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/railtoken/railtoken/inspect"
)

// auditJSON is one step of an action.
type auditJSON struct {
	At      time.Time `json:"at"`
	Action  string    `json:"action"`
	Outcome string    `json:"outcome"`
	*jsonKey
	Task   string `json:"task,omitempty"`
	Queue  string `json:"queue,omitempty"` // of an action on several tasks
	Owner  string `json:"owner,omitempty"`
	Holder string `json:"holder,omitempty"`
	By     string `json:"by"`
	Why    string `json:"why,omitempty"`
	Floor  int64  `json:"floor,omitempty"`
	Result string `json:"result,omitempty"`
	Error  string `json:"error,omitempty"`
}

func (a *app) auditCommand() *cobra.Command {
	n := 20
	c := &cobra.Command{
		Use: "audit", Short: "list what operators have done, newest first", Args: cobra.NoArgs,
		RunE: a.do(func(ctx context.Context, _ []string) error { return a.audit(ctx, n) }),
	}
	c.Flags().IntVarP(&n, "limit", "n", n, "the `number` of entries to list")
	return c
}

func (a *app) audit(ctx context.Context, n int) error {
	if n < 1 {
		return fmt.Errorf("--limit is %d: it must be at least 1", n)
	}
	entries, err := a.conn.inspector.Audit(ctx, n)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Key != "" {
			a.shown[e.Key] = true
		}
	}
	if a.json {
		list := make([]auditJSON, len(entries))
		for i, e := range entries {
			list[i] = a.auditJSON(e)
		}
		return a.out.json(map[string]any{"audit": list})
	}
	rows := make([][]string, len(entries))
	for i, e := range entries {
		rows[i] = a.auditRow(e)
	}
	a.out.table("No operator has done anything.", "AT ACTION OUTCOME KEY TASK BY WHY RESULT", rows)
	return nil
}

func (a *app) auditJSON(e inspect.AuditEntry) auditJSON {
	j := auditJSON{
		At: e.At.UTC(), Action: string(e.Action), Outcome: string(e.Outcome), Owner: e.Owner, Holder: e.Holder,
		By: e.By, Why: e.Why, Floor: e.Floor, Result: e.Result, Error: a.hidden(e.Err),
	}
	if e.Key != "" {
		k := a.jsonKey(e.Key)
		j.jsonKey = &k
	}
	if e.Task.ID != "" {
		j.Task = e.Task.String()
	} else {
		j.Queue = e.Task.Queue
	}
	return j
}

func (a *app) auditRow(e inspect.AuditEntry) []string {
	key, task, result := "-", e.Task.Queue, e.Result
	if e.Key != "" {
		key = a.key(e.Key)
	}
	if e.Task.ID != "" {
		task = e.Task.String()
	}
	if e.Holder != "" {
		result = "taken from " + e.Holder
	}
	if e.Err != "" {
		result = a.hidden(e.Err)
	}
	return []string{
		e.At.UTC().Format(time.RFC3339), or(string(e.Action)), or(string(e.Outcome)), key, or(task), or(e.By), or(e.Why), or(result),
	}
}
