package admin

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/inspect/explain"
)

type cancelData struct {
	Of          delayqueue.Task
	Explanation explain.Explanation
}

// confirmCancel asks before a task is cancelled.
func (p *Page) confirmCancel(r *http.Request) (view, error) {
	t, err := taskOf(r)
	if err != nil {
		return view{}, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), readLimit)
	defer cancel()
	e, err := p.explain(ctx, t)
	if err != nil {
		return view{}, err
	}
	if err := p.allowed(r, inspect.ActionView, e.Key); err != nil { // it may have got the key since authorize looked
		return view{}, err
	}
	if e.Key == "" {
		return view{}, &refusal{
			http.StatusConflict, "the key of this task is not known, so nobody can say whether you may cancel it",
			"Nothing was changed. Use the command: railtoken cancel TASK.",
		}
	}
	return view{"cancel", "Cancel a task?", "waiting", "", cancelData{Of: t, Explanation: e}}, nil
}

// doCancel cancels a task. [inspect.Inspector.Cancel] records it in the audit.
func doCancel(ctx context.Context, p *Page, r *http.Request) (string, string, error) {
	key, t, err := p.subject(r)
	if err != nil {
		return "", "", err
	}
	e, err := p.explain(ctx, t)
	if err != nil {
		return "", "", err
	}
	if e.Key != key {
		return "", "", &refusal{http.StatusConflict, "the task is not one of this key any more", "Nothing was changed. Look at the task again."}
	}
	c := inspect.Cancellation{By: p.operator(r), Why: strings.TrimSpace(r.PostForm.Get("why")), Discard: r.PostForm.Get("discard") != "", Key: key}
	if err := c.Validate(); err != nil {
		return "", "", unchanged(err.Error())
	}
	told, err := p.opts.Inspector.Cancel(ctx, t, c)
	done := fmt.Sprintf("Task %s was cancelled.", t)
	if told {
		done = fmt.Sprintf("The run of task %s was told that it is cancelled. It ends when its handler returns.", t)
	}
	return done, "/key?" + p.keyQuery(key), err
}
