package admin_test

import (
	"errors"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/inspect/admin"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
)

// reported waits until a worker has reported that it holds something.
func (r *rig) reported() *rig {
	r.Helper()
	for {
		held, err := r.inspector.Held(r.Context(), 1)
		if err != nil {
			r.Fatal(err)
		}
		if len(held) > 0 {
			return r
		}
		redistest.Receive(r, time.After(5*time.Millisecond), limit)
	}
}

// search returns where a search leads, or the text of its page.
func (r *rig) search(q string) (next, text string) {
	r.Helper()
	answer, text := r.request(http.MethodGet, "/find?q="+q, nil, nil)
	return answer.Header.Get("Location"), text
}

func TestTheSearchFindsKeysTasksTypesAndWorkers(t *testing.T) {
	t.Parallel()
	r := newRig(t, admin.Options{}).crowd("order:4711", "second").reported()
	r.task(middleware.Parked, "limited", "order:4711", "third")
	for q, want := range map[string]string{
		"order:4711": "/key?key=order%3A4711", "second": "/task?queue=default&task=second", "default/second": "/task?queue=default&task=second",
		"first": "/task?queue=default&task=first",
	} {
		if next, text := r.search(q); next != want {
			t.Errorf("%s leads to %q, want %q: %s", q, next, want, text)
		}
	}
	host, _ := os.Hostname()
	for q, parts := range map[string][]string{
		"4711": {"order:4711"}, "ordr:4711": {"order:4711"}, "ORDER:4711": {"order:4711"}, "secon": {"default/second"},
		"audit": {"Held by tasks of type audit", "Waited for by tasks of type audit", "order:4711"},
		"LIMIT": {"Waited for by tasks of type limited", "order:4711"}, host + "/" + strconv.Itoa(os.Getpid()): {"<h2>Workers</h2>", "1 key held"},
		"nothing-like-it": {"no worker has a name like", "nothing-like-it"},
	} {
		next, text := r.search(q)
		if next != "" || strings.Contains(text, "Nothing holds this key") || strings.Contains(text, "searched by their types") {
			t.Errorf("%s leads to %q: %s", q, next, text)
		}
		contains(t, "the hits of "+q, text, parts...)
	}
}

func TestTheSearchHidesWhatAuthorizeRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t, admin.Options{Authorize: func(_ *http.Request, _ inspect.Action, key string) error {
		if strings.HasPrefix(key, "tenant-b:") {
			return errors.New("only for its tenant")
		}
		return nil
	}}).crowd("tenant-b:4711", "job-4711").reported()
	r.task(middleware.Parked, "limited", "tenant-b:4711", "third")
	for _, q := range []string{"4711", "tenant-a:4711", "job", "job-4711", "first", "audit", "limited"} {
		next, text := r.search(q)
		if next != "" || strings.Contains(text, "tenant-b") || strings.Contains(text, "default/") {
			t.Errorf("a search for %s leads to %q, and shows another tenant's: %s", q, next, text)
		}
	}
	r.get(http.StatusForbidden, "/find?q=tenant-b%3A4711")
}

func TestHiddenKeysCannotBeGuessedBySearching(t *testing.T) {
	t.Parallel()
	r := newRig(t, admin.Options{ShowKey: func(string) string { return "h1" }}).crowd("secret:1")
	if _, text := r.search("secret"); strings.Contains(text, "<h2>Keys</h2>") {
		t.Errorf("a part of a key finds it: %s", text)
	}
}

// Of twelve tasks with 1 MB each not all are read; those with small payloads are.
func TestASearchByTypeReadsFewPayloads(t *testing.T) {
	t.Parallel()
	r := newRig(t, admin.Options{})
	park := func(id, kind string, payload int) {
		message := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), kind)
		message = protowire.AppendBytes(protowire.AppendTag(message, 2, protowire.BytesType), make([]byte, payload))
		task, set, now := line.Task{Queue: "default", ID: id}, line.Names{}.Waiters("order:1"), time.Now().UnixMicro()
		if _, err := r.client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			p.HSet(t.Context(), task.Hash(), "state", "retry", "msg", message, line.WaitField,
				line.Wait{Conflict: line.Conflict{Count: 1, First: time.UnixMicro(now)}, Place: now, Keys: []string{"order:1"}}.String())
			p.ZAdd(t.Context(), set, redis.Z{Score: float64(now), Member: task.Entry()})
			p.ZAdd(t.Context(), line.Names{}.Index(""), redis.Z{Score: float64(now), Member: task.Entry()})
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 12 {
		park(strconv.Itoa(n), "report:print", 1<<20)
	}
	park("small", "report:mail", 100)
	_, text := r.search("report")
	contains(t, "the hits", text, "tasks of type report:mail", "tasks of type report:print",
		"not all of them were searched by their types")
}
