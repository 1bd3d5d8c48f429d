package main

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

func TestAdminServesThePageUntilItIsStopped(t *testing.T) {
	newSystem(t).work().crowd("order:1", "second")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reader, writer := io.Pipe()
	defer reader.Close()
	var errOut buffer
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"admin", "--listen", "127.0.0.1:0", "--hash"}, strings.NewReader(""), writer, &errOut)
	}()
	line := make([]byte, 200)
	n, err := reader.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	address := regexp.MustCompile(`http://\S+`).FindString(string(line[:n]))
	if !strings.Contains(string(line[:n]), "read-only") || address == "" {
		t.Fatalf("admin prints %q", line[:n])
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	if err != nil || answer.StatusCode != http.StatusOK || !strings.Contains(string(text), "tasks wait") ||
		strings.Contains(string(text), "order:1") {
		t.Errorf("the page: %d, %v, %s", answer.StatusCode, err, text)
	}
	must(t, exitOK, "admin", "--health", address)
	cancel()
	if status := <-ended; status != exitOK {
		t.Errorf("admin ends with %d: %s", status, errOut.String())
	}
	if out := must(t, exitError, "admin", "--health", address); !strings.Contains(out, "not served") {
		t.Errorf("the health of a stopped page: %s", out)
	}
}

func TestAdminRefusesActionsForTheWholeNetwork(t *testing.T) {
	newSystem(t)
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--listen", "0.0.0.0:0", "--allow-actions"}, "everyone in the network"},
		{[]string{"--listen", ":0", "--allow-actions"}, "everyone in the network"},
		{[]string{"--allow-actions-from-anywhere"}, "allows nothing by itself"},
		{[]string{"--listen", "8090"}, "host:port"},
		{[]string{"--listen", "127.0.0.1:99999"}, "listen on"},
	} {
		if out := must(t, exitError, append([]string{"admin"}, c.args...)...); !strings.Contains(out, c.says) {
			t.Errorf("admin %q prints %q, want %q", c.args, out, c.says)
		}
	}
}

func TestAdminWarnsWhenAnyHostNameIsAccepted(t *testing.T) {
	for _, c := range []struct {
		o     adminOptions
		warns bool
	}{
		{adminOptions{listen: "0.0.0.0:8090"}, true},
		{adminOptions{listen: ":8090", actions: true, exposed: true}, true},
		{adminOptions{listen: "0.0.0.0:8090", hosts: []string{"locks.example"}}, false},
		{adminOptions{listen: "127.0.0.1:8090", actions: true}, false},
		{adminOptions{listen: "[::1]:8090"}, false},
	} {
		if warning, err := c.o.check(); err != nil || (warning != "") != c.warns {
			t.Errorf("%+v: warning %q, error %v", c.o, warning, err)
		}
	}
}
