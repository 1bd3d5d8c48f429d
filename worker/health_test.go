package worker

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railtoken/railtoken/internal/asynqtest"
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
