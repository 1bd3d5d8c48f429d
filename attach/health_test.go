package attach_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// ask sends a request to a handler.
func ask(t testing.TB, h http.Handler) (status int, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	return w.Code, w.Body.String()
}

// awaitHealth asks a handler until it answers with a status and a text.
func awaitHealth(t testing.TB, h http.Handler, status int, text string) {
	t.Helper()
	var got int
	var body string
	for began := time.Now(); time.Since(began) < limit; <-time.After(10 * time.Millisecond) {
		if got, body = ask(t, h); got == status && strings.Contains(body, text) {
			return
		}
	}
	t.Fatalf("it answers %d, %q; want %d, %q", got, body, status, text)
}

// wantLive checks that the process need not be restarted.
func wantLive(t testing.TB, a *attach.Attached) {
	t.Helper()
	if status, body := ask(t, a.Live()); status != http.StatusOK {
		t.Errorf("live: %d, %q", status, body)
	}
}

// idle is a handler that has nothing to do.
var idle = asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })

func TestReadinessFollowsAnOutageAndLivenessDoesNot(t *testing.T) {
	t.Parallel()
	const password = "hunter2"
	server := redistest.Start(t, "--requirepass", password)
	r := &rig{T: t, client: server.Client(t)}
	a := r.attach(asynq.Config{Concurrency: 4}, attach.Options{})
	a.SetHealthLimits(300*time.Millisecond, 600*time.Millisecond)
	if status, body := ask(t, a.Ready()); status != http.StatusServiceUnavailable || !strings.Contains(body, "no server runs") {
		t.Errorf("before a server was made: %d, %q", status, body)
	}
	client, cfg := a.Client(), a.Config()
	if _, body := ask(t, a.Ready()); !strings.Contains(body, "has not been started") {
		t.Errorf("before the server was started: %q", body)
	}
	r.serve(client, cfg, a.Lock(byPayload)(idle))
	awaitHealth(t, a.Ready(), http.StatusOK, "ready")
	server.Kill()
	awaitHealth(t, a.Ready(), http.StatusServiceUnavailable, "tasks cannot be fetched")
	awaitHealth(t, a.Ready(), http.StatusServiceUnavailable, "no lock can be taken")
	if _, body := ask(t, a.Ready()); strings.Contains(body, password) || !strings.Contains(body, server.Addr()) {
		t.Errorf("without Redis: %q; want its address, and no password", body)
	}
	wantLive(t, a)
	server.Restart(t)
	awaitHealth(t, a.Ready(), http.StatusOK, "ready")
	a.Stop()
	if status, body := ask(t, a.Ready()); status != http.StatusServiceUnavailable || !strings.Contains(body, "shutting down") {
		t.Errorf("after Stop: %d, %q", status, body)
	}
	wantLive(t, a)
}

func TestAnUnfitRedisIsNotReady(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if err := r.client.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err(); err != nil {
		t.Fatal(err)
	}
	if err := r.client.ConfigSet(t.Context(), "maxmemory", "100mb").Err(); err != nil {
		t.Fatal(err)
	}
	a := r.attach(asynq.Config{Concurrency: 4}, attach.Options{})
	r.serve(a.Client(), a.Config(), a.Lock(byPayload)(idle))
	awaitHealth(t, a.Ready(), http.StatusServiceUnavailable, "noeviction")
	wantLive(t, a)
	if err := r.client.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err(); err != nil {
		t.Fatal(err)
	}
	awaitHealth(t, a.Ready(), http.StatusOK, "ready")
}

// hanging has the fetch loop of a server hang.
type hanging struct {
	redis.UniversalClient
	hangs atomic.Bool
	end   chan struct{}
}

func (h *hanging) EvalSha(ctx context.Context, sum string, keys []string, args ...any) *redis.Cmd {
	if kind, _ := broker.KindOf(sum, keys); kind == broker.Fetch && h.hangs.Load() {
		<-h.end
	}
	return h.UniversalClient.EvalSha(ctx, sum, keys, args...)
}

func TestAHungFetchLoopIsDeadOnceRedisAnswers(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := &rig{T: t, client: server.Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled = true })}
	a := r.attach(asynq.Config{Concurrency: 4}, attach.Options{})
	a.SetHealthLimits(200*time.Millisecond, 400*time.Millisecond)
	client := &hanging{UniversalClient: a.Client(), end: make(chan struct{})}
	r.serve(client, a.Config(), a.Lock(byPayload)(idle))
	awaitHealth(t, a.Ready(), http.StatusOK, "ready")
	server.Pause()
	client.hangs.Store(true)
	awaitHealth(t, a.Ready(), http.StatusServiceUnavailable, "the fetch loop has been stuck")
	wantLive(t, a) // the loop may be waiting for Redis
	server.Resume()
	awaitHealth(t, a.Live(), http.StatusServiceUnavailable, "although Redis answers")
	client.hangs.Store(false)
	close(client.end)
	awaitHealth(t, a.Live(), http.StatusOK, "live")
	awaitHealth(t, a.Ready(), http.StatusOK, "ready")
}

func TestReadinessFollowsTheQuorumOfTheLockServers(t *testing.T) {
	t.Parallel()
	servers := make([]*redistest.Server, 3)
	nodes := make([]*redis.Options, len(servers))
	for i := range servers {
		servers[i] = redistest.Start(t)
		nodes[i] = &redis.Options{Addr: servers[i].Addr()}
	}
	// A server on a busy machine is not taken for one that is down.
	redlock, err := locking.NewRedlock(nodes, locking.RedlockOptions{Guard: locking.GuardOff, NodeTimeout: 250 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = redlock.Close() })
	r := newRig(t)
	a := r.attach(asynq.Config{Concurrency: 4}, attach.Options{Locker: locking.NewGate(redlock, locking.GateOptions{})})
	a.SetHealthLimits(300*time.Millisecond, 600*time.Millisecond)
	r.serve(a.Client(), a.Config(), a.Lock(byPayload)(idle))
	awaitHealth(t, a.Ready(), http.StatusOK, "ready")
	servers[0].Kill()
	for began := time.Now(); time.Since(began) < 2*time.Second; <-time.After(100 * time.Millisecond) {
		if status, body := ask(t, a.Ready()); status != http.StatusOK {
			t.Fatalf("with two of three lock servers: %d, %q", status, body)
		}
	}
	servers[1].Kill()
	awaitHealth(t, a.Ready(), http.StatusServiceUnavailable, servers[1].Addr())
	wantLive(t, a)
	servers[1].Restart(t)
	awaitHealth(t, a.Ready(), http.StatusOK, "ready")
}

func TestServersInQuarantineAreNotReady(t *testing.T) {
	t.Parallel()
	nodes := make([]*redis.Options, 3)
	for i := range nodes {
		nodes[i] = &redis.Options{Addr: redistest.Start(t).Addr()}
	}
	redlock, err := locking.NewRedlock(nodes, locking.RedlockOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = redlock.Close() })
	r := newRig(t)
	a := r.attach(asynq.Config{Concurrency: 4}, attach.Options{Locker: locking.NewGate(redlock, locking.GateOptions{})})
	r.serve(a.Client(), a.Config(), a.Lock(byPayload)(idle))
	awaitHealth(t, a.Ready(), http.StatusServiceUnavailable, "no lock can be taken")
	wantLive(t, a)
}

func TestReadinessLeavesOneKeyBehind(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.attach(asynq.Config{Concurrency: 4}, attach.Options{})
	r.serve(a.Client(), a.Config(), a.Lock(byPayload)(idle))
	awaitHealth(t, a.Ready(), http.StatusOK, "ready")
	keys, err := r.client.Keys(t.Context(), "railtoken:lock:*").Result()
	if err != nil || len(keys) != 1 || !strings.HasSuffix(keys[0], ":fence") {
		t.Errorf("%q, %v; want one fence counter", keys, err)
	}
	if ttl := r.client.TTL(t.Context(), keys[0]).Val(); ttl <= 0 || ttl > 2*time.Hour {
		t.Errorf("it is kept for %v", ttl)
	}
}
