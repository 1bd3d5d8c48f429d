package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"html"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/inspect/admin"
	"github.com/railtoken/railtoken/internal/testing/leaktest"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

func TestMain(m *testing.M) {
	redis.SetLogger(quiet{})
	redistest.SideBySide(8) // most of these tests wait
	leaktest.Verify(m)
}

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// limit bounds every wait for an event.
const limit = 30 * time.Second

// errBroken is why tasks fail.
var errBroken = errors.New("the warehouse does not answer")

// rig is a Redis with an admin page.
type rig struct {
	*testing.T
	redis     *redistest.Server
	client    *redis.Client
	page      *admin.Page
	inspector *inspect.Inspector
	server    *httptest.Server
	http      *http.Client // a browser: it keeps cookies, and does not follow redirects
	events    chan middleware.Event

	unreported bool // the worker reports nothing
}

func newRig(t *testing.T, o admin.Options) *rig {
	t.Helper()
	r := &rig{T: t, redis: redistest.Start(t), events: make(chan middleware.Event, 1000)}
	r.client = redis.NewClient(&redis.Options{
		Addr: r.redis.Addr(), MaxRetries: -1, DialerRetries: 1, DialTimeout: time.Second, ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { _ = r.client.Close() })
	inspector, err := inspect.New(inspect.Options{Tasks: r.client})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = inspector.Close() })
	o.Tasks, o.Inspector, r.inspector = r.client, inspector, inspector
	if r.page, err = admin.New(o); err != nil {
		t.Fatal(err)
	}
	r.server = httptest.NewServer(r.page)
	t.Cleanup(func() { r.page.Close(); r.server.Close() })
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	r.http = &http.Client{Jar: jar, Timeout: limit, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	t.Cleanup(r.http.CloseIdleConnections)
	return r
}

type job struct {
	Key   string
	Fails bool // in its handler
}

// crowd runs a worker in which task "first" holds key, and the others wait for it.
func (r *rig) crowd(key string, waiters ...string) *rig {
	r.Helper()
	r.work()
	r.task(middleware.Acquired, "audit", key, "first")
	for _, id := range waiters {
		r.task(middleware.Parked, "audit", key, id)
	}
	return r
}

// behindFailed runs a worker in which two tasks of a key wait in order behind one that has failed.
func (r *rig) behindFailed(key string) *rig {
	r.Helper()
	r.work()
	r.add("strict", "broken", job{Key: key, Fails: true})
	for r.state("broken") != "retry" {
		redistest.Receive(r, time.After(5*time.Millisecond), limit)
	}
	r.task(middleware.Parked, "strict", key, "next")
	r.task(middleware.Parked, "strict", key, "last")
	return r
}

// work runs a worker until the end of the test.
func (r *rig) work() {
	r.Helper()
	w, err := worker.New(worker.Config{
		Redis: worker.Redis{Addr: r.redis.Addr()}, Logger: slog.New(slog.DiscardHandler), Concurrency: 4,
		ShutdownTimeout: 10 * time.Millisecond, DisableReports: r.unreported,
		Observer: func(_ context.Context, e middleware.Event) {
			select {
			case r.events <- e:
			default:
			}
		},
	})
	if err != nil {
		r.Fatal(err)
	}
	for name, s := range map[string]middleware.Strategy{
		"audit":   middleware.Requeue{},
		"strict":  middleware.Requeue{Order: middleware.StrictFIFO},
		"limited": middleware.Requeue{Limits: delayqueue.Limits{Conflicts: 1}},
	} {
		if err := worker.Handle(w, name, worker.Handler[job]{
			Strategy: s, Keys: func(j job) []string { return []string{j.Key} },
			Run: func(ctx context.Context, j job) error {
				if j.Fails {
					return errBroken
				}
				<-ctx.Done()
				return ctx.Err()
			},
		}); err != nil {
			r.Fatal(err)
		}
	}
	if err := w.Start(context.Background()); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = w.Shutdown() })
}

// task adds a task and waits for an event of it.
func (r *rig) task(kind middleware.EventKind, taskType, key, id string) {
	r.Helper()
	r.add(taskType, id, job{Key: key})
	r.await(kind, id)
}

// add adds a task.
func (r *rig) add(taskType, id string, j job) {
	r.Helper()
	data, err := json.Marshal(j)
	if err != nil {
		r.Fatal(err)
	}
	client := asynq.NewClientFromRedisClient(r.client)
	if _, err := client.Enqueue(asynq.NewTask(taskType, data), asynq.TaskID(id), asynq.Timeout(time.Minute)); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) await(kind middleware.EventKind, id string) {
	r.Helper()
	for {
		if e := redistest.Receive(r, r.events, limit); e.Kind == kind && e.Task.ID == id {
			return
		}
	}
}

func (r *rig) state(id string) string {
	return r.client.HGet(r.Context(), "asynq:{default}:t:"+id, "state").Val()
}

// answer is what a request is answered, apart from the text.
type answer struct {
	StatusCode int
	Header     http.Header
}

// request sends a request and returns the answer with its text.
func (r *rig) request(method, path string, form url.Values, header http.Header) (answer, string) {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), method, r.server.URL+path, strings.NewReader(form.Encode()))
	if err != nil {
		r.Fatal(err)
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	maps.Copy(req.Header, header)
	if host := header.Get("Host"); host != "" {
		req.Host = host
	}
	response, err := r.http.Do(req)
	if err != nil {
		r.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		r.Fatal(err)
	}
	return answer{response.StatusCode, response.Header}, string(text)
}

// get returns the text of a page, which must have this status.
func (r *rig) get(status int, path string) string {
	r.Helper()
	answer, text := r.request(http.MethodGet, path, nil, nil)
	if answer.StatusCode != status {
		r.Fatalf("GET %s: status %d, want %d: %s", path, answer.StatusCode, status, text)
	}
	return text
}

var field = regexp.MustCompile(`<input type="hidden" name="(\w+)" value="([^"]*)">`)

// form returns the hidden fields of the form of an action on a page.
func (r *rig) form(text, action string) url.Values {
	r.Helper()
	_, rest, ok := strings.Cut(text, `action="/do/`+action+`"`)
	if !ok {
		r.Fatalf("the page has no form for %s: %s", action, text)
	}
	rest, _, _ = strings.Cut(rest, "</form>")
	form := url.Values{}
	for _, m := range field.FindAllStringSubmatch(rest, -1) {
		form.Set(m[1], html.UnescapeString(m[2]))
	}
	return form
}

// sameSite is what a browser says about a form of the page itself.
func (r *rig) sameSite() http.Header {
	return http.Header{"Origin": {r.server.URL}, "Sec-Fetch-Site": {"same-origin"}}
}

// post sends a form, which must be answered with this status, and returns the answer's text: that of the next page if it is
// redirected.
func (r *rig) post(status int, action string, form url.Values) string {
	r.Helper()
	answer, text := r.request(http.MethodPost, "/do/"+action, form, r.sameSite())
	if answer.StatusCode != status {
		r.Fatalf("POST %s: status %d, want %d: %s", action, answer.StatusCode, status, text)
	}
	if next := answer.Header.Get("Location"); next != "" {
		return r.get(http.StatusOK, next)
	}
	return text
}
