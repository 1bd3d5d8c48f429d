package worker

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railtoken/railtoken/internal/testing/asynqtest"
	"github.com/railtoken/railtoken/middleware"
)

// wantHealth checks the answer of a handler.
func wantHealth(t testing.TB, h http.Handler, status int, text string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	if w.Code != status || !strings.Contains(w.Body.String(), text) {
		t.Errorf("it answers %d, %q; want %d, %q", w.Code, w.Body, status, text)
	}
}

func TestAWorkerIsReadyFromStartToShutdown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _ := virtual(t, Config{})
		handle(t, w, "audit", nothing)
		wantHealth(t, w.Ready(), http.StatusServiceUnavailable, "no server runs")
		start(t, w)
		time.Sleep(time.Second)
		wantHealth(t, w.Ready(), http.StatusOK, "ready")
		wantHealth(t, w.Live(), http.StatusOK, "live")
		if err := w.Shutdown(); err != nil {
			t.Error(err)
		}
		wantHealth(t, w.Ready(), http.StatusServiceUnavailable, "shutting down")
		wantHealth(t, w.Live(), http.StatusOK, "live")
	})
}

func TestAWorkerWithoutAFreeSlotIsReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		running, finish := make(chan struct{}), make(chan struct{})
		w, m := virtual(t, Config{Concurrency: 1})
		handle(t, w, "audit", func(context.Context, order) error {
			close(running)
			<-finish
			return nil
		})
		start(t, w)
		asynqtest.Enqueue(t, m, orderTask(t, "audit", "42"))
		<-running
		for range 9 {
			time.Sleep(19 * time.Second)
			wantHealth(t, w.Ready(), http.StatusOK, "ready")
			wantHealth(t, w.Live(), http.StatusOK, "live")
		}
		close(finish)
	})
}

func TestAWorkerIsNotReadyAfterFifteenSecondsWithoutRedis(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, m := virtual(t, Config{})
		handle(t, w, "audit", nothing)
		start(t, w)
		time.Sleep(time.Second)
		wantHealth(t, w.Ready(), http.StatusOK, "ready")
		m.SetError("OOM command not allowed")
		time.Sleep(14 * time.Second)
		wantHealth(t, w.Ready(), http.StatusOK, "ready")
		time.Sleep(2 * time.Second)
		wantHealth(t, w.Ready(), http.StatusServiceUnavailable, "OOM")
		time.Sleep(10 * time.Minute)
		wantHealth(t, w.Live(), http.StatusOK, "live")
		m.SetError("")
		time.Sleep(2 * time.Second)
		wantHealth(t, w.Ready(), http.StatusOK, "ready")
	})
}

// Neither needs a task that runs: nothing is fetched in an outage.
func TestAnIdleWorkerTellsHowLongRedisIsUnreachable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		told := make(chan middleware.Event, 1)
		w, m := virtual(t, Config{Observer: func(_ context.Context, e middleware.Event) { told <- e }})
		handle(t, w, "audit", nothing)
		start(t, w)
		reach := (<-told).Reach
		want := func(least, most time.Duration) {
			t.Helper()
			for range 3 {
				tasks, locks, ok := reach(t.Context())
				if !ok || min(tasks, locks) < least || max(tasks, locks) > most {
					t.Errorf("tasks %v, locks %v, %v; want %v to %v", tasks, locks, ok, least, most)
				}
				time.Sleep(2 * time.Second)
			}
		}
		time.Sleep(10 * time.Minute)
		want(0, 6*time.Second)
		m.SetError("OOM command not allowed")
		want(0, 6*time.Second) // a blip
		time.Sleep(20 * time.Minute)
		want(20*time.Minute, 21*time.Minute)
		m.SetError("")
		time.Sleep(2 * time.Second)
		want(0, 6*time.Second)
		if err := w.Shutdown(); err != nil {
			t.Error(err)
		}
		if _, _, ok := reach(t.Context()); ok {
			t.Error("a worker that is shut down still tells")
		}
	})
}
