package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/railtoken/railtoken/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Verify(m) }

// Not parallel: the command reads the environment.
func TestCommandShowsTheDemo(t *testing.T) {
	withoutRedis(t)
	timeline := filepath.Join(t.TempDir(), "timeline.html")
	var out, errOut bytes.Buffer
	status := command(t.Context(), []string{"-demo", "-n", "60", "-single-try", "0", "-work", "20ms,25ms", "-timeline", timeline}, &out, &errOut)
	if status != exitOK {
		t.Fatalf("status %d\n%s%s", status, &out, &errOut)
	}
	for _, want := range []string{
		"1. Without locks", "WRONG", "2. With railtoken", "embedded in this process", "without locks  with railtoken", "The ideal is ", "OK: no overlap", timeline,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output does not say %q:\n%s", want, &out)
		}
	}
	if page, err := os.ReadFile(timeline); err != nil || !bytes.Contains(page, []byte("strategy default")) {
		t.Errorf("the timeline is not that of the second half: %d bytes, %v", len(page), err)
	}
}

func TestCommandFailsWithoutLocks(t *testing.T) {
	withoutRedis(t)
	var out, errOut bytes.Buffer
	status := command(t.Context(), []string{"-no-lock", "-n", "60", "-work", "20ms,25ms", "-timeline", ""}, &out, &errOut)
	if status != exitWrong || !strings.Contains(out.String(), "updates are lost") {
		t.Errorf("status %d\n%s%s", status, &out, &errOut)
	}
}

func TestCommandReadsOrdersFromAFile(t *testing.T) {
	withoutRedis(t)
	file := filepath.Join(t.TempDir(), "mine.csv")
	if err := os.WriteFile(file, []byte(validCSV), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errOut bytes.Buffer
	if status := command(t.Context(), []string{"-orders", file, "-timeline", ""}, &out, &errOut); status != exitOK {
		t.Errorf("status %d\n%s%s", status, &out, &errOut)
	}
	if !strings.Contains(out.String(), "2 orders (from mine.csv), 4 tasks") {
		t.Errorf("the output does not say what was read:\n%s", &out)
	}
}

func TestCommandSaysWhatIsWrong(t *testing.T) {
	withoutRedis(t)
	for _, test := range []struct {
		args   string
		status int
		want   string
	}{
		{"-help", exitOK, "Flags:"},
		{"-nonsense", exitUsage, "-nonsense"},
		{"-orders /nowhere.csv", exitWrong, "/nowhere.csv"},
		{"-n 2 -db /nowhere/orders.db", exitWrong, "/nowhere/orders.db"},
		{"-produce -run a", exitWrong, "RAILTOKEN_REDIS_ADDR"},
		{"-n 10001 -strategy failfast", exitWrong, "10001 orders are too many"},
	} {
		var out, errOut bytes.Buffer
		status := command(t.Context(), strings.Fields(test.args), &out, &errOut)
		if status != test.status || !strings.Contains(errOut.String(), test.want) {
			t.Errorf("%s: status %d, want %d, and no %q in:\n%s", test.args, status, test.status, test.want, &errOut)
		}
	}
}

// withoutRedis unsets what the caller's environment says of Redis; setting a variable here restores it afterwards.
func withoutRedis(t *testing.T) {
	t.Helper()
	for _, name := range addresses {
		t.Setenv(name, "")
	}
}
