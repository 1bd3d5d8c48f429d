package admin

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/inspect/explain"
	"github.com/railtoken/railtoken/internal/holdings"
	"github.com/railtoken/railtoken/internal/logsafe"
)

const (
	perPage = 100
	top     = 10
)

// view is a page to show.
type view struct {
	Template string
	Title    string
	Nav      string // the part of the navigation that it belongs to
	Topic    string // query of the address of its events
	Data     any
}

// paging says which part of a list is shown.
type paging struct {
	From, To, All int
	Prev, Next    string // addresses; empty if there is none
}

// page returns the bounds of the part of a list that a request asks for.
func page(r *http.Request, all int) paging {
	n, err := strconv.Atoi(r.FormValue("page"))
	if err != nil || n < 1 || n > 1<<20 {
		n = 1
	}
	from := min((n-1)*perPage, max(all-1, 0)/perPage*perPage)
	g := paging{From: from, To: min(from+perPage, all), All: all}
	address := func(n int) string {
		q := r.URL.Query()
		q.Del("note")
		q.Set("page", strconv.Itoa(n))
		return "?" + q.Encode()
	}
	if from > 0 {
		g.Prev = address(from / perPage)
	}
	if g.To < all {
		g.Next = address(from/perPage + 2)
	}
	return g
}

type overviewData struct {
	*snapshot
	Slots, Running, InSlots, Held int
	Hot, Long                     []keyRow
	Nodes                         []inspect.Node
	NodesErr                      string
	Voting                        int
	Differ                        bool
	lastHour
}

func (p *Page) overview(r *http.Request) (view, error) {
	s, err := p.snapshot(r.Context())
	if err != nil {
		return view{}, err
	}
	d := overviewData{snapshot: s, Differ: differ(s.Workers)}
	for _, w := range s.Workers {
		d.Slots, d.Running, d.InSlots, d.Held = d.Slots+w.Slots, d.Running+w.Running, d.InSlots+w.Waiting, d.Held+w.Keys
	}
	hot := sorted(s.Keys, "waiters")
	hot = hot[:min(top, len(hot))]
	d.Hot = slices.DeleteFunc(hot, func(k keyRow) bool { return k.Waiters == 0 })
	long := sorted(s.Keys, "hold")
	long = long[:min(top, len(long))]
	d.Long = slices.DeleteFunc(long, func(k keyRow) bool { return k.Holding == nil && k.Lock == nil })
	if d.Nodes, err = p.nodes(r.Context()); err != nil {
		d.NodesErr = err.Error()
	}
	for _, n := range d.Nodes {
		if n.Err == nil && n.Refused == "" {
			d.Voting++
		}
	}
	d.lastHour = p.lastHour(r.Context(), holdings.Minute.All)
	return view{"overview", "Overview", "overview", "", d}, nil
}

func differ(workers []inspect.Worker) bool {
	return slices.ContainsFunc(workers, func(w inspect.Worker) bool {
		return w.Version != workers[0].Version || w.Config != workers[0].Config
	})
}

type keysData struct {
	By   string
	Rows []keyRow
	paging
	Truncated bool
}

func (p *Page) keys(r *http.Request) (view, error) {
	s, err := p.snapshot(r.Context())
	if err != nil {
		return view{}, err
	}
	by := r.FormValue("by")
	if orders[by] == nil {
		by = "waiters"
	}
	g := page(r, len(s.Keys))
	return view{"keys", "Keys", "keys", "", keysData{by, sorted(s.Keys, by)[g.From:g.To], g, s.Truncated}}, nil
}

type keyData struct {
	inspect.KeyState
	Hash    string
	Audit   []inspect.AuditEntry
	Floor   bool
	Ordered bool
	Silent  int // lock servers that do not answer
	lastHour
}

func (p *Page) key(r *http.Request) (view, error) {
	key, err := p.keyOf(r)
	if err != nil {
		return view{}, err
	}
	k, err := p.look(r.Context(), key)
	if err != nil {
		return view{}, err
	}
	d := keyData{KeyState: k, Hash: logsafe.Keys([]string{key})[0], Floor: p.opts.Floor != nil, Ordered: len(k.Sequence) > 0}
	for _, s := range k.Servers {
		if s.Err != nil {
			d.Silent++
		}
	}
	d.lastHour = p.lastHour(r.Context(), func(m holdings.Minute) (holdings.Point, bool) { return m.Of(key) })
	audit, err := p.readAudit(r.Context())
	if err != nil {
		return view{}, err
	}
	for _, e := range audit {
		if e.Key == key {
			d.Audit = append(d.Audit, e)
		}
	}
	return view{"key", p.brief(key), "keys", p.keyQuery(key), d}, nil
}

type waitingData struct {
	Rows []delayqueue.Waiter
	paging
	Truncated bool
	Waiting   int
}

func (p *Page) waiting(r *http.Request) (view, error) {
	s, err := p.snapshot(r.Context())
	if err != nil {
		return view{}, err
	}
	g := page(r, len(s.Waiters))
	return view{"waiting", "Waiting tasks", "waiting", "", waitingData{s.Waiters[g.From:g.To], g, s.Truncated, s.Waiting}}, nil
}

// taskOf returns the task that a request names.
func taskOf(r *http.Request) (delayqueue.Task, error) {
	t := delayqueue.Task{Queue: r.FormValue("queue"), ID: r.FormValue("task")}
	if t.Queue == "" || t.ID == "" {
		return t, &refusal{http.StatusNotFound, "the address names no task", "Find the task in the list of waiting tasks."}
	}
	return t, nil
}

func (p *Page) task(r *http.Request) (view, error) {
	t, err := taskOf(r)
	if err != nil {
		return view{}, err
	}
	e, err := read(r.Context(), &p.reads, "task:"+t.String(), func(ctx context.Context) (explain.Explanation, error) {
		return p.explain(ctx, t)
	})
	if err != nil {
		return view{}, err
	}
	if err := p.allowed(r, inspect.ActionView, e.Key); err != nil { // it may have got the key since authorize looked
		return view{}, err
	}
	e.Why, e.Remedy, e.Expected = p.without(e.Why, e.Key), p.without(e.Remedy, e.Key), p.without(e.Expected, e.Key)
	return view{"task", "Task " + plainLine(t.String(), 60), "waiting", "", struct {
		explain.Explanation
		Of delayqueue.Task
	}{e, t}}, nil
}

func (p *Page) explain(ctx context.Context, t delayqueue.Task) (explain.Explanation, error) {
	return explain.Task(ctx, explain.Options{Tasks: p.opts.Tasks, Inspector: p.opts.Inspector, Redlock: p.opts.Redlock}, t)
}

func (p *Page) workers(r *http.Request) (view, error) {
	s, err := p.snapshot(r.Context())
	if err != nil {
		return view{}, err
	}
	return view{"workers", "Workers", "workers", "", struct {
		Workers []inspect.Worker
		Differ  bool
	}{s.Workers, differ(s.Workers)}}, nil
}

func (p *Page) servers(r *http.Request) (view, error) {
	nodes, err := p.nodes(r.Context())
	return view{"servers", "Lock servers", "servers", "", nodes}, err
}

func (p *Page) readAudit(ctx context.Context) ([]inspect.AuditEntry, error) {
	return read(ctx, &p.reads, "audit", func(ctx context.Context) ([]inspect.AuditEntry, error) {
		return p.opts.Inspector.Audit(ctx, 1000)
	})
}

func (p *Page) audit(r *http.Request) (view, error) {
	entries, err := p.readAudit(r.Context())
	if err != nil {
		return view{}, err
	}
	g := page(r, len(entries))
	return view{"audit", "Audit", "audit", "", struct {
		Rows []inspect.AuditEntry
		paging
	}{entries[g.From:g.To], g}}, nil
}

type dropData struct {
	Waiter delayqueue.Waiter
	Type   string
}

// confirmDrop asks before a task is deleted.
func (p *Page) confirmDrop(r *http.Request) (view, error) {
	t, err := taskOf(r)
	if err != nil {
		return view{}, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), readLimit)
	defer cancel()
	w, err := p.opts.Inspector.Queue().Inspector().Find(ctx, t)
	if err != nil {
		return view{}, err
	}
	if err := p.allowed(r, inspect.ActionView, w.Key); err != nil { // as above
		return view{}, err
	}
	return view{"drop", "Delete a task?", "waiting", "", dropData{Waiter: w}}, nil
}

// queuesOf returns the queues of a worker with their priorities.
func queuesOf(w inspect.Worker) string {
	var names []string
	for _, q := range slices.Sorted(maps.Keys(w.Queues)) {
		names = append(names, q+" ×"+strconv.Itoa(w.Queues[q]))
	}
	return strings.Join(names, ", ")
}
