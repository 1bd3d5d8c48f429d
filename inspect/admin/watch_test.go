package admin_test

import (
	"bufio"
	"crypto/rand"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/inspect/admin"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
)

// listen opens a page's events. The channel receives each one, and is closed when the connection ends.
func (r *rig) listen(path string) <-chan struct{} {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, r.server.URL+path, http.NoBody)
	if err != nil {
		r.Fatal(err)
	}
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		r.Fatal(err)
	}
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "text/event-stream" {
		r.Fatalf("status %d, %v", answer.StatusCode, answer.Header)
	}
	r.Cleanup(func() { answer.Body.Close() })
	events := make(chan struct{}, 1000)
	go func() {
		defer close(events)
		for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
			if lines.Text() == "event: changed" {
				events <- struct{}{}
			}
		}
	}()
	return events
}

func TestAConflictIsToldWithinASecond(t *testing.T) {
	t.Parallel()
	r := newRig(t, admin.Options{}).crowd("order:1")
	redistest.Receive(t, r.listen("/events?key=other"), limit) // it has been read once
	all, one := r.listen("/events"), r.listen("/events?key=order%3A1")
	redistest.Receive(t, all, limit)
	redistest.Receive(t, one, limit)
	began := time.Now()
	r.task(middleware.Parked, "audit", "order:1", "second")
	for !strings.Contains(r.get(http.StatusOK, "/key?key=order%3A1"), "default/second") {
		redistest.Receive(t, one, limit)
	}
	for !strings.Contains(r.get(http.StatusOK, "/waiting"), "default/second") {
		redistest.Receive(t, all, limit)
	}
	t.Logf("the conflict was told after %v", time.Since(began))
}

func TestOnlyOpenPagesCauseReads(t *testing.T) {
	t.Parallel()
	r := newRig(t, admin.Options{})
	calls := func() int64 {
		t.Helper()
		var n int64
		for line := range strings.Lines(r.client.Info(t.Context(), "commandstats").Val()) {
			numbers, ok := strings.CutPrefix(line, "cmdstat_zrange:calls=")
			if !ok {
				continue
			}
			digits, _, _ := strings.Cut(numbers, ",")
			for _, d := range digits {
				n = 10*n + int64(d-'0')
			}
		}
		return n
	}
	before := calls()
	for range 20 {
		r.listen("/events")
	}
	for calls() == before {
		redistest.Receive(t, time.After(5*time.Millisecond), limit)
	}
	began, at := time.Now(), calls()
	for calls() < at+8 {
		redistest.Receive(t, time.After(50*time.Millisecond), limit)
	}
	if took := time.Since(began); took < 1200*time.Millisecond { // four reads of two calls, less one for a late first look
		t.Errorf("20 pages cause eight calls in %v", took)
	}
	r.page.Close()
	at = calls()
	redistest.Receive(t, time.After(time.Second), limit)
	if now := calls(); now != at {
		t.Errorf("%d reads although no page is open", now-at)
	}
}

func TestTooManyOpenPagesAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, admin.Options{})
	var open []<-chan struct{}
	for range 64 {
		open = append(open, r.listen("/events"))
	}
	answer, _ := r.request(http.MethodGet, "/events", nil, nil)
	if answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" {
		t.Errorf("the 65th: status %d", answer.StatusCode)
	}
	r.page.Close()
	for _, events := range open {
		for range events { // until it is closed
		}
	}
	r.get(http.StatusServiceUnavailable, "/events")
	r.get(http.StatusOK, "/")
	r.page.Close()
}

// wait has a task wait for a key, in Redis alone: no worker knows it.
func (r *rig) wait(key, queue, id string) {
	r.Helper()
	ctx := r.Context()
	set := waitersKey(key)
	r.client.HSet(ctx, "asynq:{"+queue+"}:t:"+id, "state", "retry", line.WaitField,
		line.Wait{Conflict: line.Conflict{Count: 1, First: time.UnixMicro(1)}, Place: 1, Keys: []string{key}}.String())
	r.client.ZAdd(ctx, set, redis.Z{Score: 1, Member: entryOf(queue, id)})
	r.client.ZAdd(ctx, "railtoken:parked", redis.Z{Score: 1, Member: entryOf(queue, id)})
}

// expire wakes a task again, so that it reaches its limit, and waits until it is archived.
func (r *rig) expire(path, id string) {
	r.Helper()
	page := ""
	for !strings.Contains(page, "/do/wake") { // what it shows may be a moment old
		page = r.get(http.StatusOK, path)
	}
	r.post(http.StatusSeeOther, "wake", r.form(page, "wake"))
	r.await(middleware.Ended, id)
	for r.state(id) != "archived" {
		redistest.Receive(r, time.After(5*time.Millisecond), limit)
	}
}

// commands returns how many commands Redis has executed, those of scripts included.
func (r *rig) commands() (n int64) {
	r.Helper()
	for line := range strings.Lines(r.client.Info(r.Context(), "commandstats").Val()) {
		name, numbers, ok := strings.Cut(line, ":calls=")
		if !ok || name == "cmdstat_info" {
			continue
		}
		digits, _, _ := strings.Cut(numbers, ",")
		calls, err := strconv.ParseInt(digits, 10, 64)
		if err != nil {
			r.Fatal(err)
		}
		n += calls
	}
	return n
}

func TestSixtyFourWatchedKeysCostSixtyCommandsPerSecond(t *testing.T) {
	t.Parallel()
	r := newRig(t, admin.Options{})
	var open []<-chan struct{}
	for n := range 64 {
		key := "order:" + strconv.Itoa(n)
		r.wait(key, "default", strconv.Itoa(n))
		open = append(open, r.listen("/events?key="+url.QueryEscape(key)))
	}
	for _, events := range open {
		redistest.Receive(t, events, limit)
	}
	before, began := r.commands(), time.Now()
	for range 2 { // rounds
		r.wait("order:63", "default", rand.Text())
		redistest.Receive(t, open[63], limit)
	}
	spent, took := r.commands()-before-2*3, time.Since(began)
	t.Logf("%d commands in %v", spent, took)
	if most := 60*took.Seconds() + 64*3; float64(spent) > most {
		t.Errorf("%d commands in %v: more than 60 a second and one round", spent, took)
	}
}
