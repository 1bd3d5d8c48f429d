package admin_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/railtoken/railtoken/inspect/admin"
	"github.com/railtoken/railtoken/internal/logsafe"
	"github.com/railtoken/railtoken/internal/testing/process"
	"github.com/railtoken/railtoken/middleware"
)

// pages are the addresses of all pages, for a key and a task that exist.
var pages = []string{
	"/", "/keys", "/keys?by=hold", "/keys?by=wait", "/key?key=order%3A1", "/waiting", "/task?queue=default&task=second",
	"/workers", "/servers", "/archived", "/audit", "/drop?queue=default&task=second", "/replay?queue=default",
}

func contains(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s does not contain %q: %s", what, part, text)
		}
	}
}

func TestAKeyShowsItsHolderAndWaiters(t *testing.T) {
	t.Parallel()
	r := newRig(t, admin.Options{}).crowd("order:1", "second", "third")
	for _, path := range pages {
		text := r.get(http.StatusOK, path)
		if strings.Contains(text, "/do/") {
			t.Errorf("%s of a read-only page has a form: %s", path, text)
		}
	}
	contains(t, "the page of the key", r.get(http.StatusOK, "/key?key=order%3A1"), "Held for", "default/second", "default/third",
		logsafe.Keys([]string{"order:1"})[0])
	contains(t, "the overview", r.get(http.StatusOK, "/"), "order:1", "<b>2</b> tasks wait")
	contains(t, "the page of a task", r.get(http.StatusOK, "/task?queue=default&task=third"), "behind", "order:1")
	answer, _ := r.request(http.MethodGet, "/find?q="+logsafe.Keys([]string{"order:1"})[0], nil, nil)
	if next := answer.Header.Get("Location"); next != "/key?key=order%3A1" {
		t.Errorf("a hash leads to %q", next)
	}
}

func TestEmptyPagesSayWhatToDo(t *testing.T) {
	t.Parallel()
	r := newRig(t, admin.Options{Prefix: "/locks", TasksURL: "/tasks"})
	for path, says := range map[string]string{
		"/": "No worker reports", "/keys": "find its key by name", "/waiting": "railtoken explain", "/workers": "Check that they run",
		"/archived": "No archived task", "/audit": "No operator has done", "/key?key=x": "Nothing holds this key",
		"/servers": "127.0.0.1",
	} {
		contains(t, path, r.get(http.StatusOK, "/locks"+path), says, `href="/locks/waiting"`, `href="/tasks"`)
	}
	r.get(http.StatusNotFound, "/locks/key")
	r.get(http.StatusNotFound, "/locks/task?queue=x")
	contains(t, "the page of a task", r.get(http.StatusOK, "/locks/task?queue=x&task=y"), "no-such-task")
}

func TestHostileKeysAreInert(t *testing.T) {
	t.Parallel()
	r := newRig(t, admin.Options{Actions: true})
	for _, key := range []string{
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `'; alert(1)//`, "a\x00b\r\nSet-Cookie: x=1", "\xff\xfe\xc0",
		strings.Repeat("ä<b>", 2500), `javascript:alert(1)`, `{{.Token}}`, "../../do/drop", "\u202egnp.exe", " key ", "a&b=c#d?e+f%00",
	} {
		// It waits for the key, but can never be woken: it is a task of nobody.
		r.wait(key, "default", "none")
		for _, address := range []string{"/key?key=" + url.QueryEscape(key), "/archived?key=" + url.QueryEscape(key)} {
			text := r.get(http.StatusOK, address)
			if strings.Contains(text, "<script>alert") || strings.Contains(text, "<img") || strings.Contains(text, "<b>ä") ||
				strings.ContainsAny(text, "\x00\u202e") || strings.Contains(text, "\xff") {
				t.Errorf("key %.40q is in the page as it is", key)
			}
		}
		answer, _ := r.request(http.MethodGet, "/find?q="+url.QueryEscape(key), nil, nil)
		if answer.Header.Get("Set-Cookie") != "" || !strings.HasPrefix(answer.Header.Get("Location"), "/key?key=") {
			t.Errorf("key %.40q: %v", key, answer.Header)
		}
		page := r.get(http.StatusOK, "/key?key="+url.QueryEscape(key))
		form := r.form(page, "wake") // it names the same bytes
		answer, _ = r.request(http.MethodPost, "/do/wake", form, r.sameSite())
		if next := answer.Header.Get("Location"); !strings.HasPrefix(next, "/key?key="+url.QueryEscape(key)+"&note=") {
			t.Errorf("a wake of key %.40q leads to %.100q", key, next)
		}
	}
}

func TestShownKeysHideTheRealOnes(t *testing.T) {
	t.Parallel()
	r := newRig(t, admin.Options{Actions: true, ShowKey: func(key string) string { return logsafe.Keys([]string{key})[0] }})
	r.crowd("secret:1").task(middleware.Parked, "limited", "secret:1", "dead")
	hash := logsafe.Keys([]string{"secret:1"})[0]
	answer, _ := r.request(http.MethodPost, "/find", url.Values{"q": {"secret:1"}}, nil)
	r.expire(answer.Header.Get("Location"), "dead")
	r.task(middleware.Parked, "audit", "secret:1", "second")
	overview := r.get(http.StatusOK, "/")
	contains(t, "the overview", overview, hash)
	answer, _ = r.request(http.MethodPost, "/find", url.Values{"q": {hash}}, nil)
	key := answer.Header.Get("Location")
	for _, path := range append([]string{key}, pages...) {
		if strings.Contains(path, "order") {
			continue
		}
		text := r.get(http.StatusOK, path)
		if strings.Contains(text, "secret") {
			t.Errorf("%s shows the key: %s", path, text)
		}
	}
	text := ""
	for !strings.Contains(text, "default/second") { // what it shows may be a moment old
		text = r.get(http.StatusOK, key)
	}
	contains(t, "the page of the key", text, hash)
	contains(t, "the dead letters", r.get(http.StatusOK, "/archived"), "default/dead", hash)
	form := r.form(text, "depose")
	form.Set("typed", hash)
	form.Set("why", "it hangs")
	if text := r.post(http.StatusSeeOther, "depose", form); strings.Contains(text, "secret") {
		t.Errorf("after a deposition the page shows the key: %s", text)
	}
	r.await(middleware.Acquired, "second")
	r.get(http.StatusNotFound, "/key?id=AAAA")
}

func TestThePageRecoversWithRedis(t *testing.T) {
	t.Parallel()
	r := newRig(t, admin.Options{})
	r.get(http.StatusOK, "/")
	// shows waits until the page has a status. Its clients pause between their dials, so that takes a moment.
	shows := func(status int) (text string) {
		err := process.Poll(t.Context(), nil, func() error {
			answer, body := r.request(http.MethodGet, "/waiting", nil, nil)
			if text = body; answer.StatusCode != status {
				return fmt.Errorf("status %d, want %d", answer.StatusCode, status)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	r.redis.Kill()
	contains(t, "the page without Redis", shows(http.StatusServiceUnavailable), "What to do", "Check that Redis runs")
	r.redis.Restart(t)
	shows(http.StatusOK)
}

func TestOptionsReportEveryFaultAtOnce(t *testing.T) {
	t.Parallel()
	_, err := admin.New(admin.Options{Prefix: "locks/", Secret: []byte("short")})
	for _, part := range []string{"Tasks", "Inspector", "Prefix", "Secret"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error %v does not name %s", err, part)
		}
	}
}

func TestAnUnreportedHolderIsNoFreeKey(t *testing.T) {
	t.Parallel()
	r := newRig(t, admin.Options{})
	r.unreported = true
	r.crowd("order:1", "second")
	contains(t, "the page", r.get(http.StatusOK, "/keys"), "not reported</span>")
}
