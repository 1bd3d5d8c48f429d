package admin_test

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/inspect/admin"
	"github.com/railtoken/railtoken/internal/holdings"
)

// remember has workers report what happened some minutes before a time.
func (r *rig) remember(now time.Time, ago int, all holdings.Point, keys map[string]holdings.Point) *rig {
	r.Helper()
	at := now.Add(-time.Duration(ago) * time.Minute)
	if _, err := holdings.Remember(r.Context(), r.client, at, all, keys, false); err != nil {
		r.Fatal(err)
	}
	return r
}

// charts returns the captions and the pictures of the last hour of a page. It fails if a picture is no SVG.
func charts(t *testing.T, page string) string {
	t.Helper()
	_, found, _ := strings.Cut(page, "<h2>Last hour</h2>")
	found, _, _ = strings.Cut(found, "<h2>")
	for rest := found; ; {
		_, after, more := strings.Cut(rest, "<svg")
		if !more {
			return found
		}
		picture, next, _ := strings.Cut(after, "</svg>")
		d := xml.NewDecoder(strings.NewReader("<svg" + picture + "</svg>"))
		elements := 0
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("a picture is no XML: %v: %s", err, picture)
			}
			if e, ok := token.(xml.StartElement); ok {
				elements++
				if name := e.Name.Local; name != "svg" && name != "title" && name != "desc" && name != "rect" {
					t.Errorf("a picture has an element %s", name)
				}
			}
		}
		if elements < 3 || !strings.Contains(picture, "<title>") || !strings.Contains(picture, "<desc>") {
			t.Errorf("a picture has %d elements: %s", elements, picture)
		}
		rest = next
	}
}

func TestThePageShowsTheLastHour(t *testing.T) {
	t.Parallel()
	r, now := newRig(t, admin.Options{}), time.Now()
	const hostile = `</title></svg><script>alert(1)</script>"'&`
	r.remember(now, 50, holdings.Point{}, nil)
	r.remember(now, 20, holdings.Point{Waiting: 12, Oldest: 75 * time.Second, Holds: 300, Wakes: 40, Refusals: 44}, map[string]holdings.Point{
		"order:1": {Waiting: 7, Oldest: 60 * time.Second, Holds: 30, Wakes: 31, Refusals: 32}, hostile: {Waiting: 3},
	})
	r.remember(now, 0, holdings.Point{Waiting: 2, Oldest: time.Second}, nil)
	at := now.Add(-20 * time.Minute).UTC().Format("15:04")
	all := charts(t, r.get(http.StatusOK, "/"))
	contains(t, "the charts of all keys", all, "<b>Waiting tasks</b> now 2, most 12 at "+at+"; ", "<title>"+at+": 12</title>",
		"<b>Oldest wait</b> now 1 s, most 1 min 15 s at", "<b>Holds</b> 300 in all", "<b>Wakes</b> 40 in all", "<b>Refusals</b> 44 in all", `class="gap"`)
	key := r.get(http.StatusOK, "/key?key=order:1")
	contains(t, "the charts of a key", charts(t, key), "now 0, most 7 at "+at, "most 1 min 00 s at", "30 in all", "31 in all", "32 in all")
	contains(t, "the charts of a key that nobody wanted", charts(t, r.get(http.StatusOK, "/key?key=order:2")),
		"<b>Waiting tasks</b> none", "<b>Holds</b> not counted")
	steered := charts(t, r.get(http.StatusOK, "/key?key="+url.QueryEscape(hostile)))
	contains(t, "the charts of a hostile key", steered, "most 3 at "+at)
	if strings.Contains(steered, "alert") || strings.Contains(key+all, "style=") {
		t.Errorf("a key or a style is in a picture: %s", steered)
	}
}

func TestAnHourWithoutReportsIsNotZero(t *testing.T) {
	t.Parallel()
	r := newRig(t, admin.Options{})
	for _, page := range []string{"/", "/key?key=order:1"} {
		contains(t, page, r.get(http.StatusOK, page), "No worker has reported what happened in the last hour")
	}
}

func TestTheLastHourOfAKeyNeedsItsAuthorization(t *testing.T) {
	t.Parallel()
	r := newRig(t, admin.Options{Authorize: func(_ *http.Request, _ inspect.Action, key string) error {
		if key == "tenant-b:1" {
			return errors.New("only for its tenant")
		}
		return nil
	}})
	r.remember(time.Now(), 1, holdings.Point{}, map[string]holdings.Point{"tenant-a:1": {Waiting: 1}, "tenant-b:1": {Waiting: 1}})
	contains(t, "the tenant's own", r.get(http.StatusOK, "/key?key=tenant-a:1"), "<b>Waiting tasks</b>")
	if page := r.get(http.StatusForbidden, "/key?key=tenant-b:1"); strings.Contains(page, "<svg") {
		t.Errorf("another tenant's: %s", page)
	}
}

func TestAReaderSeesTheLastHour(t *testing.T) {
	t.Parallel()
	r := newRig(t, admin.Options{}).remember(time.Now(), 1, holdings.Point{Waiting: 3}, nil)
	client := r.redis.Client(t, r.redis.User(t, "reader", "~asynq:*", "~railtoken:*", "+@read", "+@connection", "+time", "+info", "+script|exists"))
	inspector, err := inspect.New(inspect.Options{Tasks: client})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = inspector.Close() })
	r.page, err = admin.New(admin.Options{Tasks: client, Inspector: inspector})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.page.Close)
	r.server.Config.Handler = r.page
	contains(t, "a reader's page", r.get(http.StatusOK, "/"), ": 3</title>")
}

// Sixty-four pages of different keys read the hour once.
func TestPagesShareOneReadOfTheLastHour(t *testing.T) {
	t.Parallel()
	r := newRig(t, admin.Options{}).remember(time.Now(), 1, holdings.Point{Waiting: 3}, nil)
	calls := func() (n int) {
		_, _ = fmt.Sscanf(stat(r.client.Info(r.Context(), "commandstats").Val(), "hgetall"), "calls=%d", &n)
		return n
	}
	before, began := calls(), time.Now()
	for n := range 64 {
		r.get(http.StatusOK, fmt.Sprint("/key?key=order:", n))
	}
	if n, took := calls()-before, time.Since(began); n > holdings.Minutes*(1+int(took/holdings.Interval)) {
		t.Errorf("64 pages have read %d minutes in %v", n, took)
	}
}

// stat returns what Redis says of a command.
func stat(info, command string) string {
	_, found, _ := strings.Cut(info, "cmdstat_"+command+":")
	return found
}
