package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/internal/logsafe"
	"github.com/railtoken/railtoken/internal/similar"
)

// keyJSON is the state of a key.
type keyJSON struct {
	jsonKey
	Hash     string       `json:"hash"`
	Holder   *holderJSON  `json:"holder,omitempty"`
	Servers  []serverJSON `json:"lock_servers"`
	Waiting  int          `json:"waiters"`
	Waiters  []waiterJSON `json:"first_waiters"`
	Sequence []waiterJSON `json:"sequence,omitempty"`
	Similar  []string     `json:"similar_keys,omitempty"` // if the key is neither held nor waited for
}

type holderJSON struct {
	Owner     string     `json:"owner"`
	Backend   string     `json:"backend,omitempty"` // of a lock that is not on Redis
	Label     string     `json:"label,omitempty"`
	Task      string     `json:"task,omitempty"`
	Type      string     `json:"type,omitempty"`
	Since     *time.Time `json:"since,omitempty"`
	Remaining float64    `json:"remaining_seconds"`
	Fence     int64      `json:"fence"`
	Votes     int        `json:"votes"`
	Silent    float64    `json:"worker_silent_seconds,omitempty"` // if the worker has missed its heartbeats
}

type serverJSON struct {
	Addr      string  `json:"addr"`
	Owner     string  `json:"owner,omitempty"`
	Label     string  `json:"label,omitempty"`
	Remaining float64 `json:"remaining_seconds,omitempty"`
	Fence     int64   `json:"fence"`
	Error     string  `json:"error,omitempty"`
}

type waiterJSON struct {
	Position  int        `json:"position"`
	Task      string     `json:"task"`
	Since     *time.Time `json:"since,omitempty"`
	Conflicts int        `json:"conflicts"`
	State     string     `json:"state"`
	// Supersedes is the group of tasks that it supersedes.
	Supersedes string     `json:"supersedes,omitempty"`
	Timer      *time.Time `json:"timer,omitempty"`
	*jsonKey   `json:",omitempty"`
}

func (a *app) lookCommand() *cobra.Command {
	n, found := 10, ""
	c := &cobra.Command{
		Use: "look KEY", Short: "show what holds a key and which tasks wait for it",
		SuggestFor: []string{"who", "holder", "key", "show"},
		Long: "look shows the whole state of one key: its holder, what each lock server has, and the first waiters.\n" +
			"--find HASH finds the key of a hash in a log line, if it is held or waited for.",
		Args: func(_ *cobra.Command, args []string) error {
			if (found == "") != (len(args) == 1) || len(args) > 1 {
				return errors.New("look needs a key, or --find with the hash of one")
			}
			return nil
		},
		ValidArgsFunction: a.completeKeys,
	}
	c.RunE = a.do(func(ctx context.Context, args []string) error {
		if found != "" {
			key, err := a.find(ctx, found)
			if err != nil {
				return err
			}
			args = []string{strconv.Quote(key)}
		}
		return a.look(ctx, a.keyOf(args[0]), n)
	})
	c.Flags().IntVarP(&n, "limit", "n", n, "the `number` of waiters to show")
	c.Flags().StringVar(&found, "find", "", "show the key with this `hash` from a log line")
	return c
}

// find returns the key with a hash, among those that are waited for, held or locked.
func (a *app) find(ctx context.Context, hash string) (string, error) {
	hash = strings.ToLower(strings.TrimSpace(hash))
	match := func(rows []*keyRow) (string, bool) {
		i := slices.IndexFunc(rows, func(r *keyRow) bool { return logsafe.Keys([]string{r.name})[0] == hash })
		if i < 0 {
			return "", false
		}
		return rows[i].name, true
	}
	rows, err := a.readKeys(ctx, 1, false)
	if err != nil {
		return "", err
	}
	if key, ok := match(rows); ok {
		return key, nil
	}
	locked, complete, err := a.conn.inspector.Scan(ctx, 1_000_000)
	if err != nil {
		return "", err
	}
	if key, ok := match(a.join(nil, nil, nil, locked)); ok {
		return key, nil
	}
	if !complete {
		return "", fmt.Errorf("no key with hash %s was found among the first million", hash)
	}
	return "", fmt.Errorf("no key with hash %s is held or waited for", hash)
}

func (a *app) look(ctx context.Context, key string, n int) error {
	k, err := a.conn.inspector.Look(ctx, key, n)
	if err != nil {
		return err
	}
	var alike []string
	if k.Holder == nil && k.Waiting == 0 && len(k.Sequence) == 0 {
		if alike, err = a.alike(ctx, key); err != nil {
			return err
		}
	}
	if a.json {
		return a.out.json(a.stateJSON(k, alike))
	}
	if k.Holder == nil && k.Waiting == 0 && len(k.Sequence) == 0 {
		a.printUnused(k, alike)
		return nil
	}
	a.out.printf("key      %s  (hash %s)\n", a.key(key), logsafe.Keys([]string{key})[0])
	if h := k.Holder; h == nil {
		a.out.printf("holder   none: the key is free\n")
	} else {
		if h.Task != nil {
			a.out.printf("holder   task %s (%s), by %s/%d\n", plain(h.Task.Task.String()), h.Task.Type, h.Task.Host, h.Task.PID)
		} else {
			a.out.printf("holder   %s\n", or(strings.TrimSpace(h.Label)))
		}
		if h.Silent > 0 {
			a.out.printf("silent   its worker has not been heard of for %s: it is stopped, is cut off from Redis, or has died\n", brief(h.Silent))
		}
		if h.Backend != "" {
			a.out.printf("held     for %s, as its worker has reported: the lock is in another store (%s)\n",
				ago(h.Since), h.Backend)
		} else {
			a.out.printf("held     for %s, %s\n", ago(h.Since), left(h.Remaining))
			a.out.printf("fence    %d at most\n", h.Fence)
			a.out.printf("owner    %s\n", h.Owner)
		}
	}
	if len(k.Servers) > 1 {
		a.printServers(k)
	}
	a.out.printf("waiters  %d\n", k.Waiting)
	if h := k.Head(); h != nil && h.Failed {
		a.out.printf("head     task %s has failed, and runs again in %s; the others wait for it\n", plain(h.Task.String()),
			brief(time.Until(h.Next)))
	} else if h != nil {
		a.out.printf("head     task %s (%s)\n", plain(h.Task.String()), h.State)
	}
	if len(k.Waiters) > 0 {
		a.out.printf("\n")
		a.out.table("", waitersHead, a.waiterRows(k.Waiters, false))
	}
	if len(k.Sequence) > 0 {
		a.out.printf("\nIn order:\n")
		a.out.table("", waitersHead, a.waiterRows(k.Sequence, false))
	}
	return nil
}

// alike returns keys that are held or waited for, and look like one that is not.
func (a *app) alike(ctx context.Context, key string) ([]string, error) {
	rows, err := a.readKeys(ctx, 1, false)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(rows))
	for i, r := range rows {
		names[i] = r.name
	}
	return similar.Few(key, names, 5), nil
}

// printUnused says that nothing holds a key or waits for it.
func (a *app) printUnused(k inspect.KeyState, alike []string) {
	a.out.printf("No task or program holds key %s, and no task waits for it.\n", a.key(k.Key))
	if len(k.Servers) > 1 {
		a.printServers(k)
	}
	if len(alike) == 0 {
		a.out.printf("No similar key is held or waited for: railtoken keys lists those that are.\n")
		return
	}
	a.out.printf("Similar keys that are held or waited for:\n")
	by := ""
	if a.hash {
		by = "--find "
	}
	for _, key := range alike {
		a.out.printf("  railtoken look %s%s\n", by, a.key(key))
	}
}

// left says how long a lock lasts.
func left(d time.Duration) string {
	if d < 0 {
		return "and without an end"
	}
	return brief(d) + " left if it is not renewed"
}

func (a *app) printServers(k inspect.KeyState) {
	for _, s := range k.Servers {
		state := "free"
		switch {
		case s.Err != nil:
			state = "no answer: " + s.Err.Error()
		case s.Owner != "":
			state = "owner " + s.Owner + ", " + left(s.Remaining)
		}
		a.out.printf("server   %s  %s\n", s.Addr, state)
	}
}

func (a *app) stateJSON(k inspect.KeyState, alike []string) keyJSON {
	all := keyJSON{
		jsonKey: a.jsonKey(k.Key), Hash: logsafe.Keys([]string{k.Key})[0], Waiting: k.Waiting,
		Waiters: a.waitersJSON(k.Waiters, false), Sequence: a.waitersJSON(k.Sequence, false),
	}
	for _, key := range alike {
		all.Similar = append(all.Similar, a.jsonKey(key).Key)
	}
	if h := k.Holder; h != nil {
		all.Holder = &holderJSON{
			Owner: h.Owner, Backend: h.Backend, Label: h.Label, Since: moment(h.Since), Remaining: h.Remaining.Seconds(),
			Fence: h.Fence, Votes: h.Votes, Silent: h.Silent.Seconds(), Task: nameOf(h.Running),
		}
		if h.Task != nil {
			all.Holder.Type = h.Task.Type
		}
	}
	for _, s := range k.Servers {
		one := serverJSON{Addr: s.Addr, Owner: s.Owner, Label: s.Label, Remaining: s.Remaining.Seconds(), Fence: s.Fence}
		if s.Err != nil {
			one.Error = s.Err.Error()
		}
		all.Servers = append(all.Servers, one)
	}
	return all
}

// nameOf returns queue/id of a task; empty for none.
func nameOf(t delayqueue.Task) string {
	if t == (delayqueue.Task{}) {
		return ""
	}
	return t.String()
}

const waitersHead = "# TASK WAITED CONFLICTS STATE TIMER"

func (a *app) waiterRows(waiters []delayqueue.Waiter, keyed bool) [][]string {
	rows := make([][]string, len(waiters))
	for i, w := range waiters {
		timer := "-"
		if !w.Next.IsZero() {
			timer = "in " + brief(time.Until(w.Next))
		}
		state := or(string(w.State))
		if w.Supersedes != "" {
			state += " (supersedes " + plain(w.Supersedes) + ")"
		}
		rows[i] = []string{strconv.Itoa(w.Position), plain(w.Task.String()), ago(w.Since), strconv.Itoa(w.Conflicts), state, timer}
		if keyed {
			rows[i] = append([]string{a.key(w.Key)}, rows[i]...)
		}
	}
	return rows
}

func (a *app) waitersJSON(waiters []delayqueue.Waiter, keyed bool) []waiterJSON {
	all := make([]waiterJSON, len(waiters))
	for i, w := range waiters {
		all[i] = waiterJSON{
			Position: w.Position, Task: w.Task.String(), Since: moment(w.Since), Conflicts: w.Conflicts, State: string(w.State),
			Supersedes: w.Supersedes, Timer: moment(w.Next),
		}
		if keyed {
			key := a.jsonKey(w.Key)
			all[i].jsonKey = &key
		}
	}
	return all
}

func (a *app) waitersCommand() *cobra.Command {
	n := 20
	c := &cobra.Command{
		Use: "waiters [KEY]", Short: "list waiting tasks: of one key in order, or of all keys, oldest first",
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.completeKeys,
		RunE: a.do(func(ctx context.Context, args []string) error { return a.waiters(ctx, args, n) }),
	}
	c.Flags().IntVarP(&n, "limit", "n", n, "the `number` of tasks to list")
	return c
}

func (a *app) waiters(ctx context.Context, args []string, n int) error {
	if n < 1 {
		return fmt.Errorf("--limit is %d: it must be at least 1", n)
	}
	inspector := a.conn.inspector.Queue().Inspector()
	if len(args) == 0 {
		all, err := inspector.Longest(ctx, n)
		if err != nil {
			return err
		}
		if a.json {
			return a.out.json(map[string]any{"waiters": a.waitersJSON(all, true)})
		}
		a.out.table("No task waits for a key.", "KEY "+waitersHead, a.waiterRows(all, true))
		return nil
	}
	key := a.keyOf(args[0])
	sequence, err := inspector.Sequence(ctx, key, n)
	if err != nil {
		return err
	}
	waiters, err := inspector.Waiters(ctx, key, n)
	if err != nil {
		return err
	}
	if a.json {
		return a.out.json(map[string]any{
			"key": a.jsonKey(key).Key, "waiters": a.waitersJSON(waiters, false), "sequence": a.waitersJSON(sequence, false),
		})
	}
	if len(sequence) > 0 {
		a.out.printf("The tasks of this key run in order:\n")
		a.out.table("", waitersHead, a.waiterRows(sequence, false))
		return nil
	}
	a.out.table("No task waits for this key.", waitersHead, a.waiterRows(waiters, false))
	return nil
}
