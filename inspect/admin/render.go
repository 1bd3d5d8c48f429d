package admin

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/internal/rediswire"
)

//go:embed assets
var assets embed.FS

// views are the templates by name.
type views map[string]*template.Template

// frame is what the layout of all pages needs.
type frame struct {
	view
	Prefix, TasksURL string
	Actions          bool
	Token            string
	Redacted         bool
	Note             string
	Query            string // what was searched for
	At               time.Time
}

// row is a part of a page, with what its forms need.
type row struct {
	Frame frame
	Item  any
}

func (p *Page) parse() error {
	funcs := template.FuncMap{
		"shown": p.shown, "brief": p.brief, "keyQuery": func(key string) template.URL {
			return template.URL(p.keyQuery(key)) //nolint:gosec // it is escaped for a query, or base64
		},
		"taskQuery": func(t delayqueue.Task) template.URL {
			return template.URL(taskQuery(t)) //nolint:gosec // it is escaped for a query
		},
		"taskID": taskID, "queueID": func(queue string) string { return taskID(delayqueue.Task{Queue: queue}) },
		"keyID": p.keyID, "ago": ago, "brieft": span, "short": func(text string) string { return plainLine(text, 200) },
		"long":    func(text string) string { return plainLine(text, 2000) },
		"without": p.without, "queues": queuesOf, "row": func(f frame, item any) row { return row{f, item} },
		"percent": func(part, all int) int { return min(100, 100*part/max(all, 1)) },
		"ms":      func(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) },
		"num":     num, "plus1": func(n int) int { return n + 1 },
	}
	names, err := fs.Glob(assets, "assets/pages/*.html")
	if err != nil {
		return err
	}
	p.views = views{}
	for _, name := range names {
		t, err := template.New("layout.html").Funcs(funcs).ParseFS(assets, "assets/layout.html", "assets/parts.html", name)
		if err != nil {
			return fmt.Errorf("admin: %w", err)
		}
		p.views[strings.TrimSuffix(path.Base(name), ".html")] = t
	}
	return nil
}

// show returns the handler of a page.
func (p *Page) show(load func(*http.Request) (view, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if _, err := p.authorize(r, inspect.ActionView); err != nil {
			p.fail(w, r, err)
			return
		}
		ctx, cancel := context.WithTimeoutCause(r.Context(), readLimit, fmt.Errorf("no answer within %v", readLimit))
		defer cancel()
		v, err := load(r.WithContext(ctx))
		if err != nil {
			p.fail(w, r, explained(err))
			return
		}
		p.render(w, r, http.StatusOK, v)
	}
}

// fail shows an error with its remedy.
func (p *Page) fail(w http.ResponseWriter, r *http.Request, err error) {
	key, _ := p.keyIfAny(r)
	d := struct {
		Cause, Remedy string
		Lasting       bool // it does not go away by itself
	}{p.without(err.Error(), key), "", false}
	status := http.StatusServiceUnavailable
	_, network := errors.AsType[net.Error](err)
	refused, isRefusal := errors.AsType[*refusal](err)
	switch {
	case isRefusal:
		status, d.Remedy, d.Lasting = refused.status, refused.remedy, true
	case strings.Contains(d.Cause, string(rediswire.NoPerm)):
		d.Remedy = "Give the user of Redis the rules that the operations guide lists."
	case strings.Contains(d.Cause, string(rediswire.NoAuth)), strings.Contains(d.Cause, string(rediswire.WrongPass)):
		d.Remedy = "Start this page with the right name and password of a user of Redis."
	case network, errors.Is(err, context.DeadlineExceeded):
		d.Remedy = "Check that Redis runs and that this host can reach it. This page tries again by itself."
	default:
		d.Remedy = "This page tries again by itself. If that does not help, run railtoken doctor."
	}
	topic := ""
	if key != "" {
		topic = p.keyQuery(key)
	}
	p.render(w, r, status, view{"error", "Error", "", topic, d})
}

func (p *Page) render(w http.ResponseWriter, r *http.Request, status int, v view) {
	f := frame{
		view: v, Prefix: p.opts.Prefix, TasksURL: p.opts.TasksURL, Actions: p.opts.Actions, Redacted: p.opts.ShowKey != nil,
		Note: p.notes.get(r.URL.Query().Get("note")), At: time.Now(),
	}
	if f.Actions {
		f.Token = p.guard.token(w, r, p.opts.Prefix+"/")
	}
	var page bytes.Buffer
	if err := p.views[v.Template].Execute(&page, f); err != nil {
		http.Error(w, "the page cannot be rendered: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = page.WriteTo(w) // the browser has left
}

// asset serves a file of the page.
func (p *Page) asset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	types := map[string]string{"style.css": "text/css; charset=utf-8", "live.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml"}
	if types[name] == "" {
		http.NotFound(w, r)
		return
	}
	text, err := assets.ReadFile("assets/" + name)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", types[name])
	w.Header().Set("Cache-Control", "max-age=300")
	_, _ = w.Write(text) // the browser has left
}
