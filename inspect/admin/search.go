package admin

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/logsafe"
	"github.com/railtoken/railtoken/internal/similar"
)

// mostHits limits how many hits of a kind a search shows.
const mostHits = 20

// hits are what a search has found, without what the user may not see.
type hits struct {
	Key     string // as it was typed
	Keys    []keyRow
	Tasks   []delayqueue.Task
	Types   []typeHit
	Workers []inspect.Worker
	CanLook bool // the user may see the page of the key that was typed
	// SomeTypes says that waiting tasks with large payloads were not searched by their types.
	SomeTypes bool
	// only is the address of the one thing that has exactly this name; empty if there is none, or several.
	only string
}

// find answers what is typed: the name or the hash of a key, the ID of a task, a type of tasks, or a worker. It leads to the one that
// has this name, or else to a page of what is similar.
func (p *Page) find(w http.ResponseWriter, r *http.Request) {
	text := unquoted(r.FormValue("q"))
	if text == "" {
		http.Redirect(w, r, p.opts.Prefix+"/keys", http.StatusSeeOther)
		return
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), readLimit, fmt.Errorf("no answer within %v", readLimit))
	defer cancel()
	found, err := p.search(r.WithContext(ctx), text)
	if err != nil {
		p.fail(w, r, err)
		return
	}
	if found.only != "" {
		http.Redirect(w, r, p.opts.Prefix+found.only, http.StatusSeeOther)
		return
	}
	if err := p.allowed(r, inspect.ActionView, text); err == nil {
		found.CanLook = true
	} else if len(found.Keys)+len(found.Tasks)+len(found.Types)+len(found.Workers) == 0 {
		p.fail(w, r, err)
		return
	}
	p.render(w, r, http.StatusOK, view{"find", "Find", "", "", found})
}

// search finds what the text names, and what is like it.
func (p *Page) search(r *http.Request, text string) (hits, error) {
	found := hits{Key: text}
	s, err := p.snapshot(r.Context())
	if err != nil {
		return found, err
	}
	may := func(key string) bool { return p.allowed(r, inspect.ActionView, key) == nil }
	if found.Keys, err = p.keysNamed(r.Context(), s, text); err != nil {
		return found, err
	}
	found.Keys = slices.DeleteFunc(found.Keys, func(k keyRow) bool { return !may(k.Key) })
	if found.Tasks, err = p.tasksNamed(r.Context(), strings.TrimSpace(text)); err != nil {
		return found, err
	}
	if found.Tasks, err = p.visible(r, found.Tasks); err != nil {
		return found, err
	}
	if may("") {
		found.Workers = workersLike(s, text)
		if found.Types, found.SomeTypes, err = p.typesLike(r.Context(), s, text, may); err != nil {
			return found, err
		}
	}
	switch exact := len(found.Keys) + len(found.Tasks); {
	case exact == 1 && len(found.Types)+len(found.Workers) > 0: // shown beside them
	case exact == 1 && len(found.Keys) == 1:
		found.only = "/key?" + p.keyQuery(found.Keys[0].Key)
	case exact == 1:
		found.only = "/task?" + taskQuery(found.Tasks[0])
	}
	if found.only != "" {
		return found, nil
	}
	found.Keys = append(found.Keys, p.keysLike(s, text, func(key string) bool {
		return may(key) && !slices.ContainsFunc(found.Keys, func(k keyRow) bool { return k.Key == key })
	})...)
	alike, err := p.visible(r, slices.DeleteFunc(tasksLike(s, text), func(t delayqueue.Task) bool { return slices.Contains(found.Tasks, t) }))
	found.Tasks = append(found.Tasks, alike...)
	return found, err
}

// keysNamed returns the keys with a name or a hash, if they are held or waited for.
func (p *Page) keysNamed(ctx context.Context, s *snapshot, text string) ([]keyRow, error) {
	hash := strings.ToLower(strings.TrimSpace(text))
	named := func(k keyRow) bool {
		return k.Key == text || logsafe.Keys([]string{k.Key})[0] == hash || p.opts.ShowKey != nil && p.opts.ShowKey(k.Key) == hash
	}
	var found []keyRow
	for _, k := range s.Keys {
		if named(k) {
			found = append(found, k)
		}
	}
	if slices.ContainsFunc(found, func(k keyRow) bool { return k.Key == text }) {
		return found, nil
	}
	state, err := p.look(ctx, text) // no worker has reported it yet, or another program holds it
	if err == nil && (state.Holder != nil || state.Waiting+len(state.Sequence) > 0) {
		found = append(found, keyRow{Key: text, Waiters: state.Waiting})
	}
	return found, err
}

// keysLike returns keys that the text may stand for. Where keys are hidden, only what is shown of them is compared: otherwise
// they could be guessed letter by letter.
func (p *Page) keysLike(s *snapshot, text string, may func(string) bool) []keyRow {
	rows, names := map[string]keyRow{}, make([]string, 0, len(s.Keys))
	for _, k := range s.Keys {
		name := k.Key
		if p.opts.ShowKey != nil {
			name = p.opts.ShowKey(k.Key)
		}
		rows[name], names = k, append(names, name)
	}
	var found []keyRow
	for _, name := range similar.Few(strings.TrimSpace(text), names, len(names)) {
		if len(found) < mostHits && may(rows[name].Key) {
			found = append(found, rows[name])
		}
	}
	return found
}

// tasksNamed returns the tasks with an ID, in any state and queue. The text is an ID, or a queue, a slash and an ID: the task may be
// in a lane of the queue.
func (p *Page) tasksNamed(ctx context.Context, text string) ([]delayqueue.Task, error) {
	if text == "" {
		return nil, nil
	}
	queues, err := p.opts.Tasks.SMembers(ctx, asynqwire.Queues).Result()
	if err != nil {
		return nil, fmt.Errorf("list the queues: %w", err)
	}
	slices.Sort(queues)
	var tasks []delayqueue.Task
	for _, queue := range queues { // a queue's name and an ID may have slashes
		tasks = append(tasks, delayqueue.Task{Queue: queue, ID: text})
		for _, name := range slices.Compact([]string{queue, lanes.Base(queue)}) {
			if id, ok := strings.CutPrefix(text, name+"/"); ok && id != "" {
				tasks = append(tasks, delayqueue.Task{Queue: queue, ID: id})
			}
		}
	}
	exist := make([]*redis.IntCmd, len(tasks))
	if _, err = p.opts.Tasks.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, t := range tasks {
			exist[i] = pipe.Exists(ctx, line.Task(t).Hash())
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("look for task %q: %w", text, err)
	}
	var found []delayqueue.Task
	for i, t := range tasks {
		if exist[i].Val() > 0 && len(found) < mostHits {
			found = append(found, t)
		}
	}
	return found, nil
}

// tasksLike returns tasks that wait or hold a key and have the text in their IDs.
func tasksLike(s *snapshot, text string) (found []delayqueue.Task) {
	text = strings.ToLower(strings.TrimSpace(text))
	add := func(t delayqueue.Task) {
		if len(found) < mostHits && text != "" && strings.Contains(strings.ToLower(t.ID), text) && !slices.Contains(found, t) {
			found = append(found, t)
		}
	}
	for _, w := range s.Waiters {
		add(w.Task)
	}
	for _, w := range s.Workers {
		for _, h := range w.Held {
			add(h.Task)
		}
	}
	return found
}

// visible returns the tasks that the user may see.
func (p *Page) visible(r *http.Request, tasks []delayqueue.Task) (seen []delayqueue.Task, err error) {
	if p.opts.Authorize == nil {
		return tasks, nil
	}
	for _, t := range tasks {
		keys, err := p.keysOf(r.Context(), t)
		if err != nil {
			return nil, err
		}
		if len(keys) == 0 {
			keys = []string{""}
		}
		if !slices.ContainsFunc(keys, func(key string) bool { return p.allowed(r, inspect.ActionView, key) != nil }) {
			seen = append(seen, t)
		}
	}
	return seen, nil
}

// workersLike returns the workers whose host, process or ID the text names.
func workersLike(s *snapshot, text string) (found []inspect.Worker) {
	text = strings.ToLower(strings.TrimSpace(text))
	for _, w := range s.Workers {
		name := strings.ToLower(w.Host + "/" + strconv.Itoa(w.PID))
		if text != "" && len(found) < mostHits && (strings.HasPrefix(name, text) || strconv.Itoa(w.PID) == text || strings.ToLower(w.ID) == text) {
			found = append(found, w)
		}
	}
	return found
}
