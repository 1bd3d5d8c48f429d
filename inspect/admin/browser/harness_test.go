package browser_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/inspect/admin"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/internal/testing/testserver"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

// limit bounds every wait for an event.
const limit = 30 * time.Second

// chromium returns the path of a Chromium. Without it the test is skipped, or fails when REDISTEST_REQUIRE is set.
func chromium(tb testing.TB) string {
	tb.Helper()
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	testserver.Needed(tb, "chromium", errors.New("neither chromium-headless-shell nor chromium is in PATH"))
	return ""
}

type job struct{ Key string }

// rig is an admin page that allows actions, a browser, and a worker unless none is wanted.
type rig struct {
	*testing.T
	server  *redistest.Server
	client  *redis.Client
	url     string
	browser context.Context
	events  chan middleware.Event
}

func newRig(t *testing.T) *rig {
	t.Helper()
	path := chromium(t)
	r := &rig{T: t, server: redistest.Start(t), events: make(chan middleware.Event, 10_000)}
	r.client = r.server.Client(t)
	inspector, err := inspect.New(inspect.Options{Tasks: r.client})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = inspector.Close() })
	page, err := admin.New(admin.Options{Tasks: r.client, Inspector: inspector, Actions: true})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(page)
	r.url = web.URL
	t.Cleanup(func() { page.Close(); web.Close() })

	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()), chromedp.WindowSize(1400, 900))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	var closeBrowser context.CancelFunc
	r.browser, closeBrowser = chromedp.NewContext(allocator)
	t.Cleanup(func() { _ = chromedp.Cancel(r.browser); closeBrowser() })
	r.run(chromedp.Navigate("about:blank"))
	return r
}

// work starts a worker, with tasks that run until they lose their keys.
func (r *rig) work(c worker.Config) *rig {
	r.Helper()
	c.Redis, c.Logger = worker.Redis{Addr: r.server.Addr()}, slog.New(slog.DiscardHandler)
	c.Concurrency, c.ShutdownTimeout = 12, 10*time.Millisecond
	c.Observer = func(_ context.Context, e middleware.Event) {
		select {
		case r.events <- e:
		default:
		}
	}
	w, err := worker.New(c)
	if err != nil {
		r.Fatal(err)
	}
	for _, name := range []string{"order:allocate", "order:audit", "order:cancel", "account:settle", "warehouse:count"} {
		s := middleware.Requeue{}
		if name == "order:cancel" {
			s.Limits = delayqueue.Limits{Conflicts: 1}
		}
		if err := worker.Handle(w, name, worker.Handler[job]{
			Strategy: s, Keys: func(j job) []string { return []string{j.Key} },
			Run: func(ctx context.Context, _ job) error { <-ctx.Done(); return ctx.Err() },
		}); err != nil {
			r.Fatal(err)
		}
	}
	if err := w.Start(context.Background()); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = w.Shutdown() })
	return r
}

// task adds a task and waits for an event of it.
func (r *rig) task(kind middleware.EventKind, taskType, key, id string) {
	r.Helper()
	data, err := json.Marshal(job{key})
	if err != nil {
		r.Fatal(err)
	}
	client := asynq.NewClientFromRedisClient(r.client)
	if _, err := client.Enqueue(asynq.NewTask(taskType, data), asynq.TaskID(id), asynq.Timeout(time.Hour)); err != nil {
		r.Fatal(err)
	}
	r.await(kind, id)
}

func (r *rig) await(kind middleware.EventKind, id string) {
	r.Helper()
	for {
		if e := redistest.Receive(r, r.events, limit); e.Kind == kind && e.Task.ID == id {
			return
		}
	}
}

// state returns asynq's state of a task; empty if there is none.
func (r *rig) state(id string) string {
	return r.client.HGet(r.Context(), "asynq:{default}:t:"+id, "state").Val()
}

// waiting is a task that waits for a key.
type waiting struct{ key, id string }

// park has tasks wait without a worker.
func (r *rig) park(tasks ...waiting) {
	r.Helper()
	ctx := r.Context()
	_, err := r.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, w := range tasks {
			t, set := line.Task{Queue: "default", ID: w.id}, line.Names{}.Waiters(w.key)
			now := time.Now().UnixMicro()
			p.HSet(ctx, t.Hash(), "state", "retry", line.WaitField,
				line.Wait{Conflict: line.Conflict{Count: 1, First: time.UnixMicro(now)}, Place: now, Keys: []string{w.key}}.String())
			p.ZAdd(ctx, set, redis.Z{Score: float64(now), Member: t.Entry()})
			p.ZAdd(ctx, "railtoken:parked", redis.Z{Score: float64(now), Member: t.Entry()})
			p.ZAdd(ctx, t.Prefix()+"retry", redis.Z{Score: float64(now/1e6 + 3600), Member: t.ID})
		}
		return nil
	})
	if err != nil {
		r.Fatal(err)
	}
}

// try lets the browser do something.
func (r *rig) try(actions ...chromedp.Action[chromedp.Void]) error {
	done := make(chan error, 1)
	go func() { done <- chromedp.Do(r.browser, actions...) }()
	select {
	case err := <-done:
		return err
	case <-time.After(limit):
		return fmt.Errorf("the browser has not answered within %v", limit)
	}
}

// run is try for what must not fail.
func (r *rig) run(actions ...chromedp.Action[chromedp.Void]) {
	r.Helper()
	if err := r.try(actions...); err != nil {
		r.Fatal(err)
	}
}

// into stores the result of an action.
func into[T any](result *T, action chromedp.Action[T]) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) (err error) {
		*result, err = action(ctx, t)
		return err
	})
}

// value returns what the browser answers.
func value[T any](r *rig, action chromedp.Action[T]) (result T) {
	r.Helper()
	r.run(into(&result, action))
	return result
}

// open opens a page of the admin page.
func (r *rig) open(path string) { r.Helper(); r.run(chromedp.Navigate(r.url + path)) }

// shows waits until the page shows a text. It goes on asking while the browser moves to another page, which fails what was
// asked of the page before.
func (r *rig) shows(text string) {
	r.Helper()
	quoted, err := json.Marshal(text)
	if err != nil {
		r.Fatal(err)
	}
	question := fmt.Sprintf("document.readyState === 'complete' && document.body.innerText.includes(%s)", quoted)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); ; <-tick.C {
		done := false
		err := r.try(into(&done, chromedp.Evaluate[bool](question)))
		switch {
		case err == nil && done:
			return
		case time.Now().After(end):
			page := ""
			_ = r.try(into(&page, chromedp.Evaluate[string]("location.href + '\\n' + document.body.innerText")))
			r.Fatalf("%s is not shown (%v): %s", quoted, err, page)
		}
	}
}

// click clicks the button, the link or the summary with a text, within the element that an XPath finds. It presses the
// button of the mouse once, when the mouse is on the element and the page does not move it any more.
func (r *rig) click(within, text string) {
	r.Helper()
	x, y := r.point(within, text)
	r.run(chromedp.MouseClickXY(x, y))
}

// point moves the mouse to the middle of what click clicks, and returns where that is.
func (r *rig) point(within, text string) (x, y float64) {
	r.Helper()
	xpath := fmt.Sprintf(`%s//*[self::button or self::a or self::summary][contains(., %q)]`, within, text)
	quoted, err := json.Marshal(xpath)
	if err != nil {
		r.Fatal(err)
	}
	find := fmt.Sprintf(`(() => {
		const e = document.evaluate(%s, document, null, XPathResult.FIRST_ORDERED_NODE_TYPE).singleNodeValue;
		if (!e || document.readyState !== "complete") return [];
		e.scrollIntoView({block: "nearest", behavior: "instant"});
		const box = e.getBoundingClientRect();
		return [box.x + box.width / 2, box.y + box.height / 2, e.matches(":hover") ? 1 : 0];
	})()`, quoted)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var at []float64
	for end := time.Now().Add(limit); time.Now().Before(end); <-tick.C {
		var now []float64
		err = r.try(into(&now, chromedp.Evaluate[[]float64](find)))
		switch {
		case err != nil || len(now) == 0:
			at = nil
		case len(at) > 0 && now[0] == at[0] && now[1] == at[1] && now[2] == 1:
			return at[0], at[1]
		default:
			at = now
			r.run(chromedp.MouseEvent(chromedp.MouseMoved, at[0], at[1]))
		}
	}
	r.Fatalf("%q cannot be clicked (%v, last seen at %v)", text, err, at)
	return 0, 0
}

// row finds the row of a table with a text.
func row(text string) string { return fmt.Sprintf(`//tr[contains(., %q)]`, text) }
