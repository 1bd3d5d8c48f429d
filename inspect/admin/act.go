package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/inspect"
)

// actLimit bounds an action.
const actLimit = 30 * time.Second

// action is something that the page can change. Its do returns what has been done, and where to go on.
type action struct {
	name   string // in the address
	action inspect.Action
	do     func(ctx context.Context, p *Page, r *http.Request) (done, next string, err error)
}

var actions = []action{
	{"depose", inspect.ActionDepose, doDepose},
	{"wake", inspect.ActionWake, doWake},
	{"put-first", inspect.ActionPutFirst, reorder("first", (*delayqueue.Inspector).PutFirst)},
	{"put-last", inspect.ActionPutLast, reorder("last", (*delayqueue.Inspector).PutLast)},
	{"drop", inspect.ActionDrop, doDrop},
	{"cancel", inspect.ActionCancel, doCancel},
	{"replay", inspect.ActionReplay, doReplay},
	{"replay-all", inspect.ActionReplay, doReplayAll},
}

// act returns the handler of an action: it checks where the form comes from and whether it is allowed, acts, and leads
// to a page that says what was done.
func (p *Page) act(a action) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !p.opts.Actions {
			p.fail(w, r, &refusal{http.StatusForbidden, "this page is read-only", "Start it with actions allowed, or use the railtoken command."})
			return
		}
		if err := p.guard.form(r); err != nil {
			p.fail(w, r, err)
			return
		}
		keys, err := p.authorize(r, a.action)
		if err != nil {
			if len(keys) > 0 {
				p.auditRefusal(r, a, keys, err)
			}
			p.fail(w, r, err)
			return
		}
		// The action goes on if the browser leaves: half of it would be worse.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), actLimit)
		defer cancel()
		done, next, err := p.do(ctx, a, keys[0], r)
		p.reads.forget()
		if err != nil {
			p.fail(w, r, explained(err))
			return
		}
		mark := "?"
		if strings.Contains(next, "?") {
			mark = "&"
		}
		http.Redirect(w, r, p.opts.Prefix+next+mark+"note="+p.notes.add(done), http.StatusSeeOther)
	}
}

// do acts, and records it in the audit.
func (p *Page) do(ctx context.Context, a action, key string, r *http.Request) (done, next string, err error) {
	if a.action == inspect.ActionDepose || a.action == inspect.ActionCancel { // the Inspector records them
		return a.do(ctx, p, r)
	}
	s := inspect.Steering{
		Action: a.action, Key: key, Task: delayqueue.Task{Queue: r.FormValue("queue"), ID: r.FormValue("task")},
		By: p.operator(r), Why: strings.TrimSpace(r.PostForm.Get("why")),
	}
	if err := s.Validate(); err != nil {
		return "", "", unchanged(err.Error())
	}
	err = p.opts.Inspector.Audited(ctx, s, func(ctx context.Context) (string, error) {
		done, next, err = a.do(ctx, p, r)
		return done, err
	})
	return done, next, err
}

// unchanged refuses a form with which nothing was begun.
func unchanged(why string) *refusal {
	return &refusal{http.StatusBadRequest, why, "Nothing was changed. Go back, and fill in the form again."}
}

// explained returns an error with a remedy, for those that are the operator's to mend.
func explained(err error) error {
	switch {
	case errors.Is(err, inspect.ErrChanged):
		return &refusal{http.StatusConflict, err.Error(), "Nothing was changed. Open the page of the key again, and look who holds it now."}
	case errors.Is(err, inspect.ErrNotCancelled):
		return &refusal{http.StatusConflict, err.Error(), "Nothing was changed."}
	case errors.Is(err, delayqueue.ErrNotWaiting):
		return &refusal{http.StatusConflict, err.Error(), "Nothing was changed: the task has gone on in the meantime."}
	case errors.Is(err, delayqueue.ErrNotArchived), errors.Is(err, delayqueue.ErrGone):
		return &refusal{http.StatusConflict, err.Error(), "Nothing was changed: the task has left the archive in the meantime."}
	}
	return err
}

func (p *Page) operator(r *http.Request) string {
	if p.opts.Operator != nil {
		if name := p.opts.Operator(r); name != "" {
			return name
		}
	}
	return "admin page, " + hostOf(r.RemoteAddr)
}

func doDepose(ctx context.Context, p *Page, r *http.Request) (string, string, error) {
	key, err := p.keyOf(r)
	if err != nil {
		return "", "", err
	}
	if typed := r.PostForm.Get("typed"); !p.isTyped(typed, key) {
		return "", "", unchanged("the key that was typed is not the key of this page")
	}
	d := inspect.Deposition{Expect: r.PostForm.Get("owner"), By: p.operator(r), Why: strings.TrimSpace(r.PostForm.Get("why"))}
	if d.Expect == "" || d.Why == "" {
		return "", "", unchanged("the owner or the reason is missing")
	}
	if err := d.Validate(); err != nil {
		return "", "", unchanged(err.Error())
	}
	if p.opts.Floor != nil {
		d.Floor = func(ctx context.Context, floor int64) error { return p.opts.Floor(ctx, key, floor) }
	}
	floor, err := p.opts.Inspector.Depose(ctx, key, d)
	if err != nil && !errors.Is(err, inspect.ErrChanged) {
		return "", "", &refusal{
			http.StatusBadGateway, p.without(err.Error(), key),
			"The key may have been taken from its holder. Repeat the deposition with the same owner: that is safe, and continues it. " +
				"Until then the key stays locked for 30 s at most.",
		}
	}
	return fmt.Sprintf("The key is free, and the next task was woken. Tokens below %d are those of the deposed holder and earlier ones.", floor),
		"/key?" + p.keyQuery(key), err
}

// isTyped reports whether the operator has typed the key as the page shows it.
func (p *Page) isTyped(typed, key string) bool {
	typed = strings.TrimSpace(typed)
	return typed != "" && (typed == strings.TrimSpace(p.shown(key)) || p.opts.ShowKey == nil && typed == key)
}

func doWake(ctx context.Context, p *Page, r *http.Request) (string, string, error) {
	key, err := p.keyOf(r)
	if err != nil {
		return "", "", err
	}
	woken, err := p.opts.Inspector.Queue().Wake(ctx, key, delayqueue.WakeOptions{})
	next := "/key?" + p.keyQuery(key)
	switch {
	case err != nil:
		return "", "", err
	case woken.Head != (delayqueue.Task{}):
		return "", "", p.unableHead(ctx, woken.Head)
	case len(woken.Tasks) > 0:
		return fmt.Sprintf("Task %s was woken.", woken.Tasks[0]), next, nil
	case woken.Pending:
		return "The next task will be woken once its slot has moved.", next, nil
	case woken.Left > 0:
		return "No waiting task can be woken now." + p.unableFirst(ctx, key), next, nil
	}
	return "No task waits for this key.", next, nil
}

// unableFirst says why the first waiter of a key was not woken; empty if that is not known.
func (p *Page) unableFirst(ctx context.Context, key string) string {
	first, err := p.opts.Inspector.Queue().Inspector().Waiters(ctx, key, 1)
	if err != nil || len(first) == 0 {
		return ""
	}
	e, err := p.explain(ctx, first[0].Task)
	if err != nil {
		return ""
	}
	return p.without(fmt.Sprintf(" The first is %s: %s.", e.Task, e.Why), key)
}

// unableHead says why the head of a sequence was not woken.
func (p *Page) unableHead(ctx context.Context, head delayqueue.Task) error {
	e, err := p.explain(ctx, head)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("no task was woken: the tasks of this key run in order, and it is the turn of %s: %s; it is to run %s",
		head, e.Why, e.Expected)
	return &refusal{http.StatusConflict, p.without(text, e.Key), "Nothing was changed. " + p.without(e.Remedy, e.Key)}
}

func reorder(
	place string, put func(*delayqueue.Inspector, context.Context, string, delayqueue.Task) error,
) func(context.Context, *Page, *http.Request) (string, string, error) {
	return func(ctx context.Context, p *Page, r *http.Request) (string, string, error) {
		key, t, err := p.subject(r)
		if err != nil {
			return "", "", err
		}
		inspector := p.opts.Inspector.Queue().Inspector()
		sequence, err := inspector.Sequence(ctx, key, 1)
		if err != nil {
			return "", "", err
		}
		if len(sequence) > 0 {
			return "", "", &refusal{http.StatusConflict, "the tasks of this key run in order", "Nothing was changed: that order cannot be changed."}
		}
		err = put(inspector, ctx, key, t)
		return fmt.Sprintf("Task %s is now the %s that waits for this key.", t, place), "/key?" + p.keyQuery(key), err
	}
}

// subject returns the task that a form is about, and its key, about which Authorize was asked.
func (p *Page) subject(r *http.Request) (key string, t delayqueue.Task, err error) {
	if key, err = p.keyOf(r); err == nil {
		t, err = taskOf(r)
	}
	return key, t, err
}

func doDrop(ctx context.Context, p *Page, r *http.Request) (string, string, error) {
	key, t, err := p.subject(r)
	if err != nil {
		return "", "", err
	}
	inspector := p.opts.Inspector.Queue().Inspector()
	w, err := inspector.Find(ctx, t)
	if err != nil {
		return "", "", err
	}
	if w.Key != key {
		return "", "", &refusal{http.StatusConflict, "the task waits for another key by now", "Nothing was changed. Look at the task again."}
	}
	return fmt.Sprintf("Task %s is deleted.", t), "/key?" + p.keyQuery(key), inspector.Drop(ctx, t)
}

func doReplay(ctx context.Context, p *Page, r *http.Request) (string, string, error) {
	t, err := taskOf(r)
	if err != nil {
		return "", "", err
	}
	return fmt.Sprintf("Task %s runs again.", t), "/archived?queue=" + url.QueryEscape(t.Queue),
		p.opts.Inspector.Queue().Inspector().Replay(ctx, t)
}

// doReplayAll replays the tasks of a preview: those that were archived in a later second are left, and no more are taken
// than it had.
func doReplayAll(ctx context.Context, p *Page, r *http.Request) (string, string, error) {
	c, err := p.choiceOf(r)
	if err != nil {
		return "", "", err
	}
	var most int
	if _, err := fmt.Sscan(r.PostForm.Get("most"), &most); err != nil || most < 1 {
		return "", "", &refusal{http.StatusBadRequest, "the number of tasks is missing", "Nothing was changed. Open the preview again."}
	}
	newest, err := strconv.ParseInt(r.PostForm.Get("newest"), 10, 64)
	if err != nil {
		return "", "", &refusal{http.StatusBadRequest, "the time of the newest task is missing", "Nothing was changed. Open the preview again."}
	}
	n, err := p.opts.Inspector.Queue().Inspector().ReplayAll(ctx, c.Queue, most, func(info *asynq.TaskInfo) bool {
		var t archivedTask
		t.explain(info.Result)
		return c.matches(t) && info.LastFailedAt.Unix() <= newest
	})
	done := fmt.Sprintf("%d tasks run again.", n)
	if n == 1 {
		done = "1 task runs again."
	}
	if err != nil {
		err = fmt.Errorf("%d tasks were replayed, then: %w", n, err)
	}
	return done, "/archived?" + string(c.Query()), err
}
