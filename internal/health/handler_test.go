package health

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestHandlerAnswersByStatus(t *testing.T) {
	t.Parallel()
	var err error
	h := Handler("ready", func(context.Context) error { return err })
	ask := func(method string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, "/", nil))
		return w
	}
	if w := ask(http.MethodGet); w.Code != http.StatusOK || w.Body.String() != "ready\n" {
		t.Errorf("%d, %q", w.Code, w.Body)
	}
	err = errors.New("no server runs")
	w := ask(http.MethodGet)
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "not ready:\nno server runs") {
		t.Errorf("%d, %q", w.Code, w.Body)
	}
	if got := w.Header().Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control is %q: a proxy may keep it", got)
	}
	if w := ask(http.MethodHead); w.Code != http.StatusServiceUnavailable {
		t.Errorf("HEAD: %d", w.Code)
	}
	if w := ask(http.MethodPost); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %d, Allow %q", w.Code, w.Header().Get("Allow"))
	}
}
