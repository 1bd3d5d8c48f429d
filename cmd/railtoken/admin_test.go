package main

import (
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

func TestAdminServesThePageUntilItIsStopped(t *testing.T) {
	newSystem(t).work().crowd("order:1", "second")
	address, stop := serveAdmin(t, "read-only", "--hash")
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
	stop()
	if out := must(t, exitError, "admin", "--health", address); !strings.Contains(out, "not served") {
		t.Errorf("the health of a stopped page: %s", out)
	}
}

// serveAdmin serves the page, and returns its address and a function that stops it.
func serveAdmin(t *testing.T, mode string, args ...string) (address string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	reader, writer := io.Pipe()
	t.Cleanup(func() { reader.Close() })
	var errOut buffer
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, append([]string{"admin", "--listen", "127.0.0.1:0"}, args...), strings.NewReader(""), writer, &errOut)
		writer.Close()
	}()
	line := make([]byte, 200)
	n, err := reader.Read(line)
	if err != nil {
		t.Fatalf("%v: %s", err, errOut.String())
	}
	if address = regexp.MustCompile(`http://\S+`).FindString(string(line[:n])); !strings.Contains(string(line[:n]), mode) || address == "" {
		t.Fatalf("admin prints %q", line[:n])
	}
	return address, func() {
		t.Helper()
		cancel()
		if status := <-ended; status != exitOK {
			t.Errorf("admin ends with %d: %s", status, errOut.String())
		}
	}
}

func TestAuditNamesTheUserOfTheProxy(t *testing.T) {
	newSystem(t).work().crowd("order:1", "second")
	address, stop := serveAdmin(t, "actions allowed", "--allow-actions", "--prefix", "/locks", "--user-header", "X-Forwarded-User")
	defer stop()
	if !strings.HasSuffix(address, "/locks/") {
		t.Errorf("the page is at %s", address)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar, Transport: &http.Transport{DisableKeepAlives: true}}
	token := ""
	ask := func(path string, users ...string) (int, string) {
		t.Helper()
		method, form := http.MethodGet, url.Values{}
		if strings.HasPrefix(path, "do/") {
			method, form = http.MethodPost, url.Values{"key": {"order:1"}, "token": {token}}
		}
		req, err := http.NewRequestWithContext(t.Context(), method, address+path, strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"X-Forwarded-User": users, "Sec-Fetch-Site": {"same-origin"}, "Content-Type": {"application/x-www-form-urlencoded"}}
		answer, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(text)
	}
	_, page := ask("key?key=order:1", "alice")
	found := regexp.MustCompile(`name="token" value="([^"]+)"`).FindStringSubmatch(page)
	if found == nil {
		t.Fatalf("the page has no form: %s", page)
	}
	token = found[1]
	for name, users := range map[string][]string{"none": nil, "empty": {" "}, "two": {"mallory", "alice"}, "long": {strings.Repeat("a", 201)}} {
		for _, path := range []string{"", "key?key=order:1", "do/wake", "events"} {
			if status, _ := ask(path, users...); status != http.StatusForbidden {
				t.Errorf("%s: %q with %s user: status %d, want 403", name, path, name, status)
			}
		}
	}
	if status, text := ask("do/wake", "alice"); status != http.StatusOK { // of the page that it leads to, without a user
		t.Errorf("wake: %d, %s", status, text)
	}
	out := must(t, exitOK, "audit", "--json")
	if !strings.Contains(out, `"alice (admin page`) || strings.Contains(out, "mallory") {
		t.Errorf("the audit: %s", out)
	}
	must(t, exitOK, "admin", "--health", address) // the check of a container has no user
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
		{[]string{"--prefix", "locks"}, "--prefix"},
		{[]string{"--user-header", "X User"}, "--user-header"},
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
