package admin

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/rediswire"
	"github.com/railtoken/railtoken/middleware"
)

// authorize asks Authorize about everything that a request concerns, before anything of it is shown or changed. It returns the keys:
// those that the task of the request really has, whatever key the request names beside it, or else the key that it names.
func (p *Page) authorize(r *http.Request, action inspect.Action) ([]string, error) {
	named, err := p.keyIfAny(r)
	if err != nil {
		return nil, err
	}
	all := []string{named}
	t := delayqueue.Task{Queue: r.FormValue("queue"), ID: r.FormValue("task")}
	if t.Queue != "" && t.ID != "" && (p.opts.Authorize != nil || action != inspect.ActionView) {
		if all, err = p.keysOf(r.Context(), t); err != nil {
			return nil, err
		}
		if len(all) == 0 && named != "" && action != inspect.ActionReplay { // the task is gone, or will be found to wait for another key
			all = []string{named}
		} else if len(all) == 0 {
			all = []string{""}
		}
	}
	for _, key := range all {
		if err := p.allowed(r, action, key); err != nil {
			return all, err
		}
	}
	if named != "" && !slices.Contains(all, named) {
		return all, &refusal{http.StatusConflict, "the task does not have this key", "Nothing was changed. Look at the task again."}
	}
	return all, nil
}

// keysOf returns the keys that a task has, by its record in Redis and by the reports of the workers.
func (p *Page) keysOf(ctx context.Context, t delayqueue.Task) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	fields, err := p.opts.Tasks.HMGet(ctx, line.Task(t).Hash(), "railtoken:keys", asynqwire.ResultField, "railtoken:sequence", line.WaitField).Result()
	if err != nil {
		return nil, fmt.Errorf("read the keys of task %s: %w", t, err)
	}
	var text [3]string
	for i := range text {
		text[i], _ = fields[i].(string)
	}
	all := line.ParseWait(fields[3]).Keys
	if key, ok := line.SequenceOf(text[2]); ok {
		all = append(all, key)
	}
	for encoded := range strings.SplitSeq(text[0], " ") {
		if key, ok := rediswire.Decode(encoded); ok && key != "" {
			all = append(all, key)
		}
	}
	if conflict, err := middleware.ParseConflict([]byte(text[1])); err == nil {
		all = append(all, conflict.Key)
	}
	s, err := p.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	for _, w := range s.Workers {
		for _, h := range w.Held {
			if h.Task == t {
				all = append(all, h.Key)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// allowed asks Authorize.
func (p *Page) allowed(r *http.Request, action inspect.Action, key string) error {
	if p.opts.Authorize == nil {
		return nil
	}
	if err := p.opts.Authorize(r, action, key); err != nil {
		return &refusal{http.StatusForbidden, p.without(err.Error(), key), "Ask for the right to do this, or sign in as another user."}
	}
	return nil
}

// refusedEach limits how often a refused action is recorded, so that nobody can push other entries out of the audit.
const refusedEach = time.Second

// auditRefusal records that an operator was refused an action.
func (p *Page) auditRefusal(r *http.Request, a action, keys []string, refused error) {
	now := time.Now().UnixMilli()
	if last := p.refused.Load(); now-last < refusedEach.Milliseconds() || !p.refused.CompareAndSwap(last, now) {
		return
	}
	s := inspect.Steering{
		Action: a.action, Key: keys[0], Task: delayqueue.Task{Queue: r.FormValue("queue"), ID: r.FormValue("task")}, By: p.operator(r),
	}
	text := refused.Error()
	if named, err := p.keyIfAny(r); err == nil && named != "" && !slices.Contains(keys, named) {
		text = fmt.Sprintf("%s; the request named key %q", text, named)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), readLimit)
	defer cancel()
	_ = p.opts.Inspector.AuditRefusal(ctx, s, text) // the action is refused in any case
}
