package admin_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/railtoken/railtoken/inspect/admin"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// The server has no limits of its own, as the program of a user may have none.
func TestHalfSentFormsEndTheirConnections(t *testing.T) {
	t.Parallel()
	r := newRig(t, admin.Options{Actions: true})
	ended := make(chan error, 200)
	request := func(method, path, kind string) {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", r.server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_, err = io.WriteString(c, method+" "+path+" HTTP/1.1\r\nHost: localhost\r\nContent-Type: "+kind+"\r\nContent-Length: 1000\r\n\r\ntoken=")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_ = c.SetReadDeadline(time.Now().Add(limit))
			_, err := io.Copy(io.Discard, c)
			ended <- err
		}()
	}
	for range 25 {
		for _, path := range []string{"/do/drop", "/find", "/nothing"} {
			request(http.MethodPost, path, "application/x-www-form-urlencoded")
			request(http.MethodPost, path, "multipart/form-data; boundary=x")
		}
		request(http.MethodGet, "/", "application/x-www-form-urlencoded")
		request(http.MethodPut, "/keys", "application/x-www-form-urlencoded")
	}
	for range cap(ended) {
		if err := redistest.Receive(t, ended, limit+time.Second); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Fatalf("a half-sent form is still connected: %v", err)
		}
	}
}

func TestEventsOutliveTheServersReadTimeout(t *testing.T) {
	t.Parallel()
	r := newRig(t, admin.Options{})
	server := httptest.NewUnstartedServer(r.page)
	server.Config.ReadTimeout = 100 * time.Millisecond
	server.Start()
	t.Cleanup(func() { r.page.Close(); server.Close() })
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/events", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		answer, err := http.DefaultClient.Do(request)
		if err == nil {
			_, err = io.Copy(io.Discard, answer.Body)
			err = errors.Join(err, answer.Body.Close())
		}
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Errorf("the events ended after the server's ReadTimeout: %v", err)
	case <-time.After(500 * time.Millisecond):
	}
}
