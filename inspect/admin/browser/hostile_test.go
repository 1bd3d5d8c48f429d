package browser_test

import (
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

func TestHostileKeysRunNoScript(t *testing.T) {
	r := newRig(t)
	const script = `<script>document.title="owned"</script>`
	for i, key := range []string{
		script, `"><img src=x onerror="document.title='owned'">`, `'"; document.title="owned"//`,
		strings.Repeat("<b>ä", 2000), "a\x00b", "\u202ekey", `javascript:document.title="owned"`,
	} {
		r.park(waiting{key, fmt.Sprint("t", i)})
	}
	for _, path := range []string{"/", "/keys", "/waiting", "/key?key=" + url.QueryEscape(script), "/find?q=" + url.QueryEscape(script)} {
		r.open(path)
		r.shows("<script>document.title")
		title := value(r, chromedp.Title())
		foreign := value(r, chromedp.Evaluate[int](`document.querySelectorAll("main script, main img, main .key b, h1 b").length`))
		if foreign != 0 || title == "owned" {
			t.Errorf("%s: title %q, %d foreign elements", path, title, foreign)
		}
	}
}

func TestLongKeysFitAPhone(t *testing.T) {
	r := newRig(t)
	long := strings.Repeat("<b>ä", 2000) // 10 kB
	r.park(waiting{long, "task"}, waiting{"order:1", strings.Repeat("t", 300)})
	r.run(chromedp.EmulateViewport(400, 800))
	for _, path := range []string{"/", "/keys", "/waiting", "/key?key=" + url.QueryEscape(long), "/key?key=order:1"} {
		r.open(path)
		r.shows("railtoken")
		if width := value(r, chromedp.Evaluate[int](`document.documentElement.scrollWidth`)); width > 400 {
			t.Errorf("%.20s is %d pixels wide on a phone of 400", path, width)
		}
	}
}

func TestOtherSitesChangeNothing(t *testing.T) {
	r := newRig(t)
	r.park(waiting{"order:1", "task"})
	r.open("/drop?queue=default&task=task") // gives the browser the cookie
	r.shows("Delete this task?")
	fields := value(r, chromedp.Evaluate[string](
		`new URLSearchParams(new FormData(document.querySelector("main form"))).toString()`))
	form, err := url.ParseQuery(fields)
	if err != nil || form.Get("token") == "" || form.Get("id") == "" {
		t.Fatalf("the form has the fields %q (%v)", fields, err)
	}

	// The other site even knows the token.
	var inputs strings.Builder
	for name := range form {
		fmt.Fprintf(&inputs, `<input name="%s" value="%s">`, html.EscapeString(name), html.EscapeString(form.Get(name)))
	}
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<!doctype html><form method="post" action="%s/do/drop">%s<button>A cat</button></form>`, r.url, inputs.String())
	}))
	t.Cleanup(other.Close)
	for _, address := range []string{other.URL, strings.Replace(other.URL, "127.0.0.1", "localhost", 1)} { // another port; another site
		r.run(chromedp.Navigate(address))
		r.click("//form", "A cat")
		r.shows("another site")
		if r.state("task") != "retry" {
			t.Fatalf("a form of %s deletes a task", address)
		}
	}

	// The page itself, without the token, with a wrong one, and with it.
	form.Del("token")
	post := func(fields string) int {
		r.open("/")
		r.shows("Overview")
		return value(r, chromedp.Evaluate[int](fmt.Sprintf(`fetch("/do/drop", {method: "POST", redirect: "manual",
			body: new URLSearchParams(%q)}).then((answer) => answer.status)`, fields), chromedp.EvalAwaitPromise))
	}
	for _, without := range []string{form.Encode(), form.Encode() + "&token=wrong"} {
		if status := post(without); status != http.StatusForbidden || r.state("task") != "retry" {
			t.Errorf("a form without its token: status %d, task in state %q", status, r.state("task"))
		}
	}
	post(fields)
	if r.state("task") != "" {
		t.Error("the form with its token does not delete the task, so that the others prove nothing")
	}
}
