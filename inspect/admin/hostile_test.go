package admin_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/inspect/admin"
	"github.com/railtoken/railtoken/internal/holdings"
)

// hostile is a text that tries to steer whatever shows it: a terminal, the order of letters, the lines of a log, a browser.
const hostile = "x\x1b]0;owned\x07\x1b[2J\u202e\u2066\u200f\u2028\r\nall is well<img src=x onerror=alert(1)>\"'"

func TestHostileTextSteersNoPage(t *testing.T) {
	t.Parallel()
	r := newRig(t, admin.Options{Actions: true, Authorize: func(*http.Request, inspect.Action, string) error { return nil }})
	ctx, key, id := t.Context(), "key "+hostile, "id "+hostile
	client, inspector := asynq.NewClientFromRedisClient(r.client), asynq.NewInspectorFromRedisClient(r.client)
	for _, task := range []string{"waits " + id, "dead " + id} {
		if _, err := client.Enqueue(asynq.NewTask("type "+hostile, nil), asynq.TaskID(task)); err != nil {
			t.Fatal(err)
		}
	}
	r.wait(key, "default", "waits "+id)
	if err := inspector.ArchiveTask("default", "dead "+id); err != nil {
		t.Fatal(err)
	}
	dead, failed := "asynq:{default}:t:dead "+id, "error "+hostile
	message := r.client.HGet(ctx, dead, "msg").Val() + "\x3a" + string(rune(len(failed))) + failed // its error
	r.client.HSet(ctx, dead, "msg", message)
	report, err := json.Marshal(holdings.Worker{
		Host: "host " + hostile, PID: 7, Version: "version " + hostile, Config: "config " + hostile, Backend: "backend " + hostile, Keys: 1,
		Queues: map[string]int{"queue " + hostile: 1}, Held: []holdings.Held{{
			Key: []byte(key), Queue: "default", ID: "holds " + id, Type: "type " + hostile, Since: time.Now().Add(-time.Hour).UnixMilli(),
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.client.Set(ctx, holdings.Key("w"), report, 0)
	r.client.ZAdd(ctx, holdings.Workers, redis.Z{Score: float64(time.Now().UnixMilli()), Member: "w"})
	r.client.Set(ctx, "railtoken:lock:{other}", "owner "+hostile, 0)
	entry := []any{}
	for _, field := range []string{"action", "outcome", "by", "why", "key", "queue", "task", "owner", "holder", "result", "error"} {
		entry = append(entry, field, field+" "+hostile)
	}
	r.client.XAdd(ctx, &redis.XAddArgs{Stream: "railtoken:audit", Values: entry})

	task := url.Values{"queue": {"default"}, "task": {"waits " + id}}.Encode()
	all := []string{
		"/key?key=" + url.QueryEscape(key), "/key?key=other", "/task?" + task, "/drop?" + task, "/archived?key=" + url.QueryEscape(key),
		"/task?" + url.Values{"queue": {"queue " + hostile}, "task": {id}}.Encode(), "/archived?queue=" + url.QueryEscape(hostile),
		"/archived?because=" + url.QueryEscape(hostile), "/find?q=all+is+well", "/find?q=none+" + url.QueryEscape(hostile), "/find?q=host",
		"/find?q=type", "/key?id=" + url.QueryEscape(hostile), "/doctor", "/nothing" + url.PathEscape(hostile),
	}
	for _, path := range append(all, pages...) {
		_, text := r.request(http.MethodGet, path, nil, nil)
		if strings.ContainsAny(text, "\x1b\x07\r\u202e\u2066\u200f\u2028") || strings.Contains(text, "<img") {
			t.Errorf("%s is steered: %q", path, text)
		}
	}
	for _, path := range []string{"/", "/keys", "/waiting", "/workers", "/archived", "/audit", all[0]} {
		contains(t, path, r.get(http.StatusOK, path), "all is well") // the text is shown
	}
	form := r.form(r.get(http.StatusOK, "/drop?"+task), "drop")
	form.Set("why", hostile)
	if text := r.post(http.StatusSeeOther, "drop", form); strings.ContainsAny(text, "\x1b\x07\r\u202e") || strings.Contains(text, "<img") {
		t.Errorf("the answer to an action is steered: %q", text)
	}
}
