//go:build unix

package etcdlock_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"syscall"
	"testing"

	"github.com/railtoken/railtoken/fence"
	"github.com/railtoken/railtoken/internal/testing/childtest"
	"github.com/railtoken/railtoken/locking"
)

// resources keep a value for each path. Only that of /guarded checks fencing tokens.
type resources struct {
	mu     sync.Mutex
	values map[string]string
	seen   int64
}

func (s *resources) claim(_ context.Context, t fence.Token) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.N < s.seen {
		return &fence.FencedError{Token: t.N, Seen: s.seen}
	}
	s.seen = t.N
	return nil
}

func (s *resources) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	value, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[r.URL.Path] = string(value)
}

// A process is stopped by SIGSTOP between its look at the lease and its writes, until the next holder has written.
func TestTheResourceRefusesAStoppedProcess(t *testing.T) {
	t.Parallel()
	etcd := sharedEtcd(t)
	s := &resources{values: map[string]string{}}
	server := httptest.NewServer(fence.Handler(s, func(r *http.Request) string {
		if r.URL.Path == "/plain" {
			return ""
		}
		return sharedKey
	}, s.claim))
	t.Cleanup(server.Close)
	c := childtest.Start(t, childEtcd+"="+etcd[0], childURL+"="+server.URL)
	if line := c.Says(t); line != "ready" {
		t.Fatalf("the child says %q", line)
	}
	c.Signal(t, syscall.SIGSTOP)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	err := locking.Do(t.Context(), newLocker(t, etcd, stoppable), []string{sharedKey}, locking.Options{},
		func(ctx context.Context, _ *locking.Lease) error {
			guarded, err := put(ctx, fence.Transport{Base: transport}, server.URL+"/guarded", "next")
			plain, failed := put(ctx, fence.Transport{Base: transport}, server.URL+"/plain", "next")
			if guarded != http.StatusOK || plain != http.StatusOK {
				t.Errorf("the next holder is answered %d and %d", guarded, plain)
			}
			return errors.Join(err, failed)
		})
	if err != nil {
		t.Fatal(err)
	}
	c.Signal(t, syscall.SIGCONT)
	c.Tell(t, "write")
	if line := c.Says(t); line != "412 200" {
		t.Errorf("the late writes are answered %q, want 412 by the guarded resource and 200 by the other", line)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.values["/guarded"] != "next" || s.values["/plain"] != "late" {
		t.Errorf("the resources have %q", s.values)
	}
}
