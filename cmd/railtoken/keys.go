package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/inspect"
)

// mostRead is how many holdings and waiters are read to order keys.
const mostRead = 10_000

// keyRow is a key that is held or waited for.
type keyRow struct {
	jsonKey
	Waiters   int        `json:"waiters"`
	Oldest    *time.Time `json:"oldest_wait,omitempty"`
	Holder    string     `json:"holder_task,omitempty"`
	Type      string     `json:"holder_type,omitempty"`
	HeldSince *time.Time `json:"held_since,omitempty"`
	Worker    string     `json:"worker,omitempty"`

	name        string
	oldest, got time.Time
}

func (a *app) keysCommand() *cobra.Command {
	by, n, scan := "waiters", 20, false
	c := &cobra.Command{
		Use: "keys", Short: "list keys that are held or waited for", Args: cobra.NoArgs,
		SuggestFor: []string{"holders", "locks", "list"},
		Long: "keys lists keys that tasks wait for, and keys that workers report as held. Reports come every 5 s; --scan also\n" +
			"finds locks of other programs, by looking at all keys in Redis.",
		RunE: a.do(func(ctx context.Context, _ []string) error { return a.listKeys(ctx, by, n, scan) }),
	}
	c.Flags().StringVar(&by, "by", by, "order: waiters, wait (the oldest) or hold (the longest)")
	c.Flags().IntVarP(&n, "limit", "n", n, "the `number` of keys to list")
	c.Flags().BoolVar(&scan, "scan", scan, "also look for locks that no worker reports")
	_ = c.RegisterFlagCompletionFunc("by", cobra.FixedCompletions([]string{"waiters", "wait", "hold"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (a *app) listKeys(ctx context.Context, by string, n int, scan bool) error {
	if n < 1 {
		return fmt.Errorf("--limit is %d: it must be at least 1", n)
	}
	order, ok := map[string]func(x, y *keyRow) int{
		"waiters": func(x, y *keyRow) int { return cmp.Compare(y.Waiters, x.Waiters) },
		"wait":    func(x, y *keyRow) int { return earlier(x.oldest, y.oldest) },
		"hold":    func(x, y *keyRow) int { return earlier(x.got, y.got) },
	}[by]
	if !ok {
		return fmt.Errorf("--by is %q: it must be waiters, wait or hold", by)
	}
	rows, err := a.readKeys(ctx, n, scan)
	if err != nil {
		return err
	}
	rows = sortKeys(rows, n, order)
	if a.json {
		return a.out.json(map[string]any{"keys": rows})
	}
	a.keyTable(rows)
	return nil
}

// sortKeys returns the first n rows in an order.
func sortKeys(rows []*keyRow, n int, order func(x, y *keyRow) int) []*keyRow {
	slices.SortFunc(rows, func(x, y *keyRow) int {
		return cmp.Or(order(x, y), earlier(x.got, y.got), cmp.Compare(x.name, y.name))
	})
	if len(rows) == 0 {
		return []*keyRow{} // for JSON
	}
	return rows[:min(n, len(rows))]
}

// busiest returns the n keys with most waiters.
func busiest(rows []*keyRow, n int) []*keyRow {
	return sortKeys(rows, n, func(x, y *keyRow) int { return cmp.Compare(y.Waiters, x.Waiters) })
}

func (a *app) keyTable(rows []*keyRow) {
	cells := make([][]string, len(rows))
	for i, r := range rows {
		cells[i] = []string{
			a.key(r.name), strconv.Itoa(r.Waiters), ago(r.oldest), or(r.Holder), or(r.Type), ago(r.got), or(r.Worker),
		}
	}
	a.out.table("No key is waited for, and no worker reports to hold one.", "KEY WAITERS OLDEST HOLDER TYPE HELD WORKER", cells)
}

// earlier orders times; none comes last.
func earlier(x, y time.Time) int {
	switch {
	case x.IsZero() && y.IsZero():
		return 0
	case x.IsZero():
		return 1
	case y.IsZero():
		return -1
	default:
		return x.Compare(y)
	}
}

// readKeys returns the keys that are waited for or held.
func (a *app) readKeys(ctx context.Context, n int, scan bool) ([]*keyRow, error) {
	inspector := a.conn.inspector.Queue().Inspector()
	waiters, err := inspector.Longest(ctx, mostRead)
	if err != nil {
		return nil, err
	}
	awaited, err := inspector.Keys(ctx, mostRead)
	if err != nil {
		return nil, err
	}
	held, err := a.conn.inspector.Held(ctx, mostRead)
	if err != nil {
		return nil, err
	}
	var locked []string
	if scan {
		if locked, _, err = a.conn.inspector.Scan(ctx, max(n, 1000)); err != nil {
			return nil, err
		}
	}
	rows := a.join(waiters, awaited, held, locked)
	return rows, a.readLocks(ctx, rows)
}

// notReported stands for the holder of a key that is held, but in no report: it took the key a moment ago, its worker is
// silent, or it is another program.
const notReported = "(not reported)"

// readLocks asks the lock servers about keys that no worker reports as held.
func (a *app) readLocks(ctx context.Context, rows []*keyRow) error {
	var asked []*keyRow
	var keys []string
	for _, r := range rows {
		if r.Holder == "" {
			asked, keys = append(asked, r), append(keys, r.name)
		}
	}
	holders, err := a.conn.inspector.Holders(ctx, keys)
	if err != nil {
		return err
	}
	for n, h := range holders {
		if h == nil {
			continue
		}
		r := asked[n]
		r.Holder, r.got, r.HeldSince = notReported, h.Since, moment(h.Since)
		if parts := strings.SplitN(h.Label, "/", 4); len(parts) == 4 { // host/PID/type/task
			r.Worker, r.Type = parts[0]+"/"+parts[1], parts[2]
		}
	}
	return nil
}

// join returns a row for each key.
func (a *app) join(
	waiters []delayqueue.Waiter, awaited []delayqueue.AwaitedKey, held []inspect.Holding, locked []string,
) []*keyRow {
	var rows []*keyRow
	known := map[string]*keyRow{}
	row := func(key string) *keyRow {
		r := known[key]
		if r == nil {
			r = &keyRow{jsonKey: a.jsonKey(key), name: key}
			known[key], rows = r, append(rows, r)
		}
		return r
	}
	for _, k := range awaited {
		row(k.Key).Waiters = k.Waiters
	}
	for _, w := range waiters {
		for _, key := range append([]string{w.Key}, w.Also...) {
			if r := row(key); r.oldest.IsZero() || w.Since.Before(r.oldest) {
				r.oldest, r.Oldest = w.Since, moment(w.Since)
			}
		}
	}
	for _, h := range held {
		r := row(h.Key)
		r.got, r.HeldSince, r.Holder, r.Type = h.Since, moment(h.Since), h.Task.String(), h.Type
		r.Worker = h.Host + "/" + strconv.Itoa(h.PID)
	}
	for _, key := range locked {
		row(key)
	}
	return rows
}

// completeKeys completes keys that are waited for or held.
func (a *app) completeKeys(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(c.Context(), 2*time.Second)
	defer cancel()
	if len(args) > 0 || a.conn.open(ctx) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer a.conn.close()
	rows, err := a.readKeys(ctx, 100, false)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names := make([]string, len(rows))
	for i, r := range rows {
		names[i] = r.name
	}
	return completions(names), cobra.ShellCompDirectiveNoFileComp
}

// completeTasks completes tasks that wait.
func (a *app) completeTasks(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(c.Context(), 2*time.Second)
	defer cancel()
	if a.conn.open(ctx) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer a.conn.close()
	waiters, err := a.conn.inspector.Queue().Inspector().Longest(ctx, 100)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names := make([]string, len(waiters))
	for i, w := range waiters {
		names[i] = w.Task.String()
	}
	return completions(names), cobra.ShellCompDirectiveNoFileComp
}
