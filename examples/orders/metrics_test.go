package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// Not parallel: the command reads the environment.
func TestServeCountsTasksAndNamesNoKeys(t *testing.T) {
	withoutRedis(t)
	t.Setenv("RAILTOKEN_REDIS_ADDR", redistest.Start(t).Addr())
	addr, db := freeAddr(t), filepath.Join(t.TempDir(), "orders.db")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out, errOut bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- command(ctx, []string{"-serve", "-run", "test", "-db", db, "-listen", addr, "-work", "1ms"}, &out, &errOut)
	}()
	var produced bytes.Buffer
	if status := command(ctx, []string{"-produce", "-run", "test", "-n", "20", "-single-try", "0"}, &produced, &produced); status != exitOK {
		t.Fatalf("status %d: %s", status, &produced)
	}

	acquired := regexp.MustCompile(`(?m)^railtoken_attempts_total\{outcome="acquired",queue="audit-test",type="\S+"\} 20$`)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	text := ""
	for deadline := time.After(30 * time.Second); !acquired.MatchString(text) || !strings.Contains(text, "\nrailtoken_inspect_up 1\n"); {
		select {
		case <-tick.C:
			text = scrape(t, "http://"+addr+"/metrics")
		case status := <-ended:
			t.Fatalf("it ended with %d: %s", status, &errOut)
		case <-deadline:
			t.Fatalf("the audits are not counted:\n%s", text)
		}
	}
	known := []string{"type", "queue", "outcome", "by", "reason", "backend", "node", "le", "server"}
	for _, label := range regexp.MustCompile(`[{,]([a-z_]+)="`).FindAllStringSubmatch(text, -1) {
		if !slices.Contains(known, label[1]) {
			t.Errorf("the metrics have the label %s: might it be a key?", label[1])
		}
	}
	stop()
	if status := <-ended; status != exitOK {
		t.Errorf("status %d: %s", status, &errOut)
	}
}

// scrape returns the text of a page; none while nothing listens there.
func scrape(t *testing.T, url string) string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get(url)
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v: %s", answer.Status, err, text)
	}
	return string(text)
}
