package admin_test

import (
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/inspect/admin"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
)

func TestFormsFromElsewhereChangeNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, admin.Options{Actions: true}).crowd("order:1", "second", "third")
	page := r.get(http.StatusOK, "/key?key=order%3A1")
	drop := r.form(r.get(http.StatusOK, "/drop?queue=default&task=second"), "drop")
	depose := r.form(page, "depose")
	depose.Set("why", "it hangs")
	depose.Set("typed", "order:1")
	without := func(form url.Values, name string) url.Values {
		form = maps.Clone(form)
		form.Del(name)
		return form
	}
	other := maps.Clone(drop)
	other.Set("token", strings.Repeat("A", 43))
	foreign := http.Header{"Origin": {"https://evil.example"}, "Sec-Fetch-Site": {"cross-site"}}
	for name, c := range map[string]struct {
		action string
		form   url.Values
		header http.Header
		status int
	}{
		"from another site":            {"drop", drop, foreign, http.StatusForbidden},
		"another origin":               {"drop", drop, http.Header{"Origin": {"https://evil.example"}}, http.StatusForbidden},
		"an origin of null":            {"drop", drop, http.Header{"Origin": {"null"}}, http.StatusForbidden},
		"from the same site":           {"drop", drop, http.Header{"Sec-Fetch-Site": {"same-site"}}, http.StatusForbidden},
		"from nowhere":                 {"drop", drop, nil, http.StatusForbidden},
		"without a token":              {"drop", without(drop, "token"), r.sameSite(), http.StatusForbidden},
		"with another token":           {"drop", other, r.sameSite(), http.StatusForbidden},
		"with another cookie":          {"drop", drop, http.Header{"Origin": {r.server.URL}, "Cookie": {"railtoken_admin=x"}}, http.StatusForbidden},
		"too large":                    {"drop", url.Values{"token": drop["token"], "x": {strings.Repeat("x", 70<<10)}}, r.sameSite(), http.StatusBadRequest},
		"without the key typed again":  {"depose", without(depose, "typed"), r.sameSite(), http.StatusBadRequest},
		"without a reason":             {"depose", without(depose, "why"), r.sameSite(), http.StatusBadRequest},
		"without an owner":             {"depose", without(depose, "owner"), r.sameSite(), http.StatusBadRequest},
		"without a key":                {"depose", without(depose, "id"), r.sameSite(), http.StatusNotFound},
		"a replay of an unknown cause": {"replay-all", url.Values{"token": drop["token"], "because": {"x"}}, r.sameSite(), http.StatusBadRequest},
	} {
		client := r.http
		if c.header.Get("Cookie") != "" {
			r.http = &http.Client{}
		}
		answer, text := r.request(http.MethodPost, "/do/"+c.action, c.form, c.header)
		r.http = client
		if answer.StatusCode != c.status || !strings.Contains(text, "What to do") {
			t.Errorf("a form %s: status %d, want %d: %s", name, answer.StatusCode, c.status, text)
		}
	}
	if answer, _ := r.request(http.MethodGet, "/do/drop?"+drop.Encode(), nil, nil); answer.StatusCode == http.StatusOK {
		t.Error("an action can be had by GET")
	}
	if r.state("first") != "active" || r.state("second") != "retry" || r.state("third") != "retry" {
		t.Errorf("something was changed: %s %s %s", r.state("first"), r.state("second"), r.state("third"))
	}
	r.post(http.StatusSeeOther, "drop", drop)
	if r.state("second") != "" {
		t.Error("the form itself does nothing either")
	}
}

func TestTheDefaultIsReadOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t, admin.Options{})
	answer, text := r.request(http.MethodPost, "/do/wake", url.Values{"key": {"x"}}, r.sameSite())
	if answer.StatusCode != http.StatusForbidden || !strings.Contains(text, "read-only") {
		t.Errorf("status %d: %s", answer.StatusCode, text)
	}
}

func TestAuthorizeRefusesWhatItDoesNotAllow(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 1000)
	r := newRig(t, admin.Options{Actions: true, Authorize: func(_ *http.Request, action inspect.Action, key string) error {
		asked <- string(action) + " " + key
		if action == inspect.ActionDrop || key == "private" {
			return errors.New("only for <b>admins</b>")
		}
		return nil
	}}).crowd("order:1", "second")
	form := r.form(r.get(http.StatusOK, "/drop?queue=default&task=second"), "drop")
	text := r.post(http.StatusForbidden, "drop", form)
	contains(t, "the answer", text, "only for &lt;b&gt;admins&lt;/b&gt;")
	if r.state("second") != "retry" {
		t.Errorf("the task is %s", r.state("second"))
	}
	for _, path := range []string{"/key?key=private", "/find?q=private", "/events?key=private", "/archived?key=private"} {
		r.get(http.StatusForbidden, path)
	}
	close(asked)
	if all := slices.Collect(chanOf(asked)); !slices.Contains(all, "drop order:1") || !slices.Contains(all, "view private") {
		t.Errorf("asked about %q", all)
	}
}

// Whatever key, task and queue a request names to any route of the page, Authorize is asked about the keys that the task
// really has.
func TestAuthorizeIsAskedAboutEveryAwaitedKey(t *testing.T) {
	t.Parallel()
	r := newRig(t, admin.Options{Actions: true, Authorize: func(_ *http.Request, _ inspect.Action, key string) error {
		if key == "tenant-b:1" {
			return errors.New("only for its tenant")
		}
		return nil
	}}).crowd("tenant-a:1", "second", "third")
	if err := r.client.HSet(t.Context(), "asynq:{default}:t:second", line.WaitField,
		line.Wait{Keys: []string{"tenant-a:1", "tenant-c:1", "tenant-b:1"}}.String()).Err(); err != nil {
		t.Fatal(err)
	}
	r.get(http.StatusOK, "/task?queue=default&task=third")
	r.get(http.StatusForbidden, "/task?queue=default&task=second")
}

func TestAuthorizeIsAskedAboutTheTasksOwnKeys(t *testing.T) {
	t.Parallel()
	const private = "tenant-b:1"
	r := newRig(t, admin.Options{Actions: true, Authorize: func(_ *http.Request, _ inspect.Action, key string) error {
		if key == private {
			return errors.New("only for its tenant")
		}
		return nil
	}}).crowd(private, "second")
	r.task(middleware.Parked, "limited", private, "late")
	if _, err := r.inspector.Queue().Wake(t.Context(), private, delayqueue.WakeOptions{Most: 2}); err != nil {
		t.Fatal(err)
	}
	r.await(middleware.Ended, "late") // its second refusal reaches its limit
	for r.state("late") != "archived" || r.state("second") != "retry" {
		redistest.Receive(r, time.After(5*time.Millisecond), limit)
	}
	r.task(middleware.Acquired, "audit", "tenant-a:1", "other")
	for held := 0; held < 2; { // the worker reports them within 5 s
		redistest.Receive(r, time.After(5*time.Millisecond), limit)
		all, err := r.inspector.Held(t.Context(), 10)
		if held = len(all); err != nil {
			t.Fatal(err)
		}
	}
	token := r.form(r.get(http.StatusOK, "/key?key=tenant-a%3A1"), "depose").Get("token")
	forged := []url.Values{{"key": {private}}} // what a request names: the key itself, or a task that has it
	for _, task := range []string{"first", "second", "late"} {
		for _, key := range []string{"", "tenant-a:1", private} {
			named := url.Values{"queue": {"default"}, "task": {task}}
			if key != "" {
				named.Set("key", key)
			}
			forged = append(forged, named)
		}
	}
	asked := 0
	for _, route := range r.page.Routes() {
		method, path, _ := strings.Cut(route, " ")
		path = strings.TrimSuffix(path, "{$}")
		if path == "/assets/{name}" { // for everybody
			continue
		}
		if path == "/find" { // it is asked by what is searched, and may find what is allowed
			for _, q := range []string{private, "tenant-b", "first", "default/second", "late"} {
				answer, text := r.request(method, path+"?"+url.Values{"q": {q}}.Encode(), nil, r.sameSite())
				for _, link := range []string{"task=first", "task=second", "task=late", "key=tenant-b%3A"} {
					if strings.Contains(answer.Header.Get("Location")+text, link) {
						t.Errorf("%s %s of %s leads to %s", method, path, q, link)
					}
				}
			}
			continue
		}
		for _, named := range forged {
			form := url.Values{}
			if method == http.MethodPost {
				form = maps.Clone(named)
				form.Set("token", token)
			}
			for _, address := range []string{path + "?" + named.Encode(), path} {
				if address == path && method == http.MethodGet {
					continue
				}
				r.page.ForgetRefusal()
				answer, text := r.request(method, address, form, r.sameSite())
				if answer.StatusCode != http.StatusForbidden {
					t.Errorf("%s %s with %v: status %d", method, address, form, answer.StatusCode)
				}
				if named.Get("key") != private && strings.Contains(text, private) {
					t.Errorf("%s %s with %v shows the key: %s", method, address, form, text)
				}
				action := admin.ActionOf(path)
				if action == inspect.ActionView {
					continue
				}
				asked++
				entries, err := r.inspector.Audit(t.Context(), 1)
				if err != nil || len(entries) != 1 {
					t.Fatalf("no refusal is in the audit: %v", err)
				}
				if e := entries[0]; e.Outcome != inspect.Refused || e.Action != action || e.Key != private ||
					e.Task.ID != named.Get("task") || !strings.Contains(e.Err, "only for its tenant") {
					t.Errorf("%s %s with %v: the audit has %+v", method, address, form, e)
				}
			}
		}
	}
	if entries, err := r.inspector.Audit(t.Context(), 1000); err != nil || len(entries) != asked || asked == 0 {
		t.Errorf("the audit has %d entries of %d, %v", len(entries), asked, err)
	}
	if first, second, late := r.state("first"), r.state("second"), r.state("late"); first != "active" || second != "retry" || late != "archived" {
		t.Errorf("something was changed: %s %s %s", first, second, late)
	}
}

func TestAKeyThatTheTaskDoesNotHaveIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, admin.Options{Actions: true}).crowd("order:1", "second")
	form := r.form(r.get(http.StatusOK, "/drop?queue=default&task=second"), "drop")
	form.Del("id")
	form.Set("key", "order:2")
	for _, action := range []string{"put-first", "put-last", "drop", "replay"} {
		r.post(http.StatusConflict, action, form)
	}
	entries, err := r.inspector.Audit(t.Context(), 1)
	if err != nil || len(entries) != 1 || entries[0].Outcome != inspect.Refused || entries[0].Key != "order:1" ||
		!strings.Contains(entries[0].Err, `named key "order:2"`) {
		t.Errorf("the audit has %+v, %v", entries, err)
	}
	if r.state("second") != "retry" {
		t.Errorf("the task is %q", r.state("second"))
	}
}

// chanOf returns what a closed channel has.
func chanOf(c <-chan string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for s := range c {
			if !yield(s) {
				return
			}
		}
	}
}

func TestForeignHostNamesAreRefused(t *testing.T) {
	t.Parallel()
	plain, named := newRig(t, admin.Options{}), newRig(t, admin.Options{Hosts: []string{"locks.example"}})
	for _, c := range []struct {
		r      *rig
		host   string
		status int
	}{
		{plain, "evil.example", http.StatusMisdirectedRequest},
		{plain, "evil.example:8080", http.StatusMisdirectedRequest},
		{plain, "127.0.0.1.evil.example", http.StatusMisdirectedRequest},
		{plain, "locks.example", http.StatusMisdirectedRequest},
		{plain, "localhost:99", http.StatusOK},
		{plain, "[::1]:99", http.StatusOK},
		{named, "Locks.example:443", http.StatusOK},
		{named, "evil.example", http.StatusMisdirectedRequest},
	} {
		answer, text := c.r.request(http.MethodGet, "/", nil, http.Header{"Host": {c.host}})
		if answer.StatusCode != c.status {
			t.Errorf("host %s: status %d, want %d: %s", c.host, answer.StatusCode, c.status, text)
		}
	}
}

func TestEveryAnswerHasStrictHeaders(t *testing.T) {
	t.Parallel()
	r := newRig(t, admin.Options{Actions: true})
	for _, path := range []string{"/", "/nothing", "/assets/live.js", "/assets/../layout.html", "/assets/layout.html", "/key", "/find?q="} {
		answer, text := r.request(http.MethodGet, path, nil, nil)
		h := answer.Header
		if !strings.HasPrefix(h.Get("Content-Security-Policy"), "default-src 'self';") || h.Get("X-Frame-Options") != "DENY" ||
			h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "same-origin" {
			t.Errorf("%s: %v", path, h)
		}
		if strings.Contains(text, "<style") || strings.Contains(text, "style=") || strings.Contains(text, "<script>") ||
			strings.Contains(text, "onclick") || strings.Contains(text, "{{") {
			t.Errorf("%s has inline style or script, or a template: %s", path, text)
		}
		if c := h.Get("Set-Cookie"); path == "/" && (!strings.Contains(c, "SameSite=Lax") || !strings.Contains(c, "HttpOnly")) {
			t.Errorf("cookie %q", c)
		}
	}
}
