package fence

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// bucket is a store of objects over HTTP, as RFC 9110 has it.
type bucket struct {
	mu       sync.Mutex
	careless bool // ignores conditions
	objects  map[string]stored
	puts     int
	before   func() // called before each PUT, once
}

type stored struct {
	etag, body string
	meta       http.Header
}

func (b *bucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if hook := b.before; r.Method == http.MethodPut && hook != nil {
		b.before = nil
		hook()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	object, found := b.objects[r.URL.Path]
	if r.Method == http.MethodHead {
		if !found {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		maps.Copy(w.Header(), object.meta)
		w.Header().Set("ETag", object.etag)
		return
	}
	if match := r.Header.Get("If-Match"); !b.careless && (match != "" && match != object.etag || r.Header.Get("If-None-Match") == "*" && found) {
		w.WriteHeader(http.StatusPreconditionFailed)
		return
	}
	body, _ := io.ReadAll(r.Body)
	b.puts++
	meta := http.Header{}
	for name, values := range r.Header {
		if strings.HasPrefix(name, "X-Amz-Meta-") {
			meta[name] = values
		}
	}
	b.objects[r.URL.Path] = stored{fmt.Sprintf("%q", fmt.Sprint("v", b.puts)), string(body), meta}
}

func openBucket(t *testing.T, careless bool) (*bucket, Web) {
	t.Helper()
	b := &bucket{careless: careless, objects: map[string]stored{}}
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	return b, Web{Client: server.Client(), URL: server.URL}
}

func TestObjectsRefuseEarlierTokens(t *testing.T) {
	t.Parallel()
	b, web := openBucket(t, false)
	const name = "orders/it's 100%?.json"
	put := func(n int64, body, etag string) error {
		return PutFenced(t.Context(), web, name, Token{"k", n}, strings.NewReader(body), etag)
	}
	if err := errors.Join(put(10, "a", ""), put(10, "b", ""), put(12, "", "")); err != nil {
		t.Fatal(err)
	}
	if err := put(11, "late", ""); !errors.Is(err, ErrFenced) {
		t.Errorf("an earlier token: %v", err)
	}
	etag, meta, err := web.Head(t.Context(), name)
	if err != nil || meta[MetaName] != "12" {
		t.Errorf("metadata %v, %v", meta, err)
	}
	if err := put(13, "c", etag); err != nil {
		t.Error(err)
	}
	if err := put(14, "d", etag); !errors.Is(err, ErrRetry) {
		t.Errorf("a write over what was read before another write: %v", err)
	}
	if got := b.objects["/"+name].body; got != "c" {
		t.Errorf("the object has %q", got)
	}
	if err := PutFenced(t.Context(), web, name, Token{"k", 0}, strings.NewReader(""), ""); !errors.Is(err, ErrInvalid) {
		t.Errorf("token 0: %v", err)
	}
}

// A later holder writes between the Head and the Put of an earlier one.
func TestALateWriteLosesTheRace(t *testing.T) {
	t.Parallel()
	for name, exists := range map[string]bool{"new object": false, "old object": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, web := openBucket(t, false)
			put := func(n int64, body string) error {
				return PutFenced(t.Context(), web, "o", Token{"k", n}, strings.NewReader(body), "")
			}
			if exists {
				if err := put(1, "old"); err != nil {
					t.Fatal(err)
				}
			}
			b.before = func() {
				if err := put(11, "new"); err != nil {
					t.Error(err)
				}
			}
			if err := put(10, "late"); !errors.Is(err, ErrFenced) || b.objects["/o"].body != "new" {
				t.Errorf("the earlier holder: %v; the object has %q", err, b.objects["/o"].body)
			}
			// The other way round, the later holder writes again.
			b.before = func() {
				if err := put(12, "early"); err != nil {
					t.Error(err)
				}
			}
			if err := put(13, "last"); err != nil || b.objects["/o"].body != "last" {
				t.Errorf("the later holder: %v; the object has %q", err, b.objects["/o"].body)
			}
		})
	}
}

func TestProbeRefusesStoresThatIgnoreConditions(t *testing.T) {
	t.Parallel()
	for careless, want := range map[bool]error{false: nil, true: ErrUnconditional} {
		_, web := openBucket(t, careless)
		for range 2 { // the second time the object is there
			if err := ProbeObjects(t.Context(), web, ".probe"); !errors.Is(err, want) {
				t.Errorf("careless %t: %v", careless, err)
			}
		}
	}
}

func TestAProbeNeedsAStore(t *testing.T) {
	t.Parallel()
	if err := ProbeObjects(t.Context(), nil, ".probe"); err == nil || !strings.Contains(err.Error(), "needs a store") {
		t.Error(err)
	}
}

// contested is a store in which others always write first.
type contested struct{ Web }

func (contested) Put(context.Context, string, io.ReadSeeker, map[string]string, string) error {
	return ErrChanged
}

func TestPutsEndWhenOthersAlwaysWrite(t *testing.T) {
	t.Parallel()
	_, web := openBucket(t, false)
	if err := PutFenced(t.Context(), contested{web}, "o", Token{"k", 1}, strings.NewReader(""), ""); !errors.Is(err, ErrRetry) {
		t.Error(err)
	}
}
