package main

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/logsafe"
	"github.com/railtoken/railtoken/middleware"
)

func TestTablesAndJSONAreGolden(t *testing.T) {
	newSystem(t).work().crowd("order:1", "second", "third").reported(2)
	for name, c := range map[string]struct {
		status int
		args   []string
	}{
		"keys":    {exitOK, []string{"keys"}},
		"look":    {exitOK, []string{"look", "order:1"}},
		"waiters": {exitOK, []string{"waiters", "order:1"}},
		"longest": {exitOK, []string{"waiters"}},
		"workers": {exitOK, []string{"workers"}},
		"nodes":   {exitOK, []string{"nodes"}},
		"explain": {exitFound, []string{"explain", "third"}},
		"top":     {exitOK, []string{"top"}},
		"doctor":  {exitOK, []string{"doctor"}},
		"watch":   {exitOK, []string{"watch", "order:1", "-n", "1"}},
	} {
		golden(t, name, must(t, c.status, c.args...))
		out := must(t, c.status, append(c.args, "--json")...)
		if !json.Valid([]byte(out)) {
			t.Errorf("%s --json is no JSON: %s", name, out)
		}
		golden(t, name+".json", out)
	}
}

func TestKeysAreShownAsHashesOnDemand(t *testing.T) {
	key := `order:{1} of "Müller" ` + "\x1b[31m"
	newSystem(t).work().crowd(key, "second")
	hash := logsafe.Keys([]string{key})[0]
	for _, args := range [][]string{
		{"keys"},
		{"keys", "--scan"},
		{"look", key},
		{"waiters"},
		{"waiters", key},
		{"explain", "second"},
		{"wake", key},
		{"doctor", "--max-wait", "1ns"},
		{"put-first", "second"},
		{"drop", "second"},
		{"cancel", "second"},
		{"top"},
		{"watch", key, "-n", "1"},
	} {
		for _, extra := range [][]string{{"--hash"}, {"--hash", "--json"}} {
			out, errOut, _ := call(t, append(args, extra...)...)
			if text := out + errOut; strings.Contains(text, "ller") || strings.Contains(text, "\x1b[31m") {
				t.Errorf("%v %v shows the key: %s", args, extra, text)
			}
		}
	}
	// Without --hash a key cannot change the colours of a terminal, and what a table shows is taken as an argument.
	out := must(t, exitOK, "keys")
	quoted := plain(key)
	if strings.Contains(out, "\x1b") || !strings.Contains(out, quoted) {
		t.Errorf("keys prints %q", out)
	}
	if out := must(t, exitOK, "look", quoted); !strings.Contains(out, "audit/first") {
		t.Errorf("look %s prints %s", quoted, out)
	}
	if out := must(t, exitOK, "look", "--find", strings.ToUpper(hash)); !strings.Contains(out, quoted) {
		t.Errorf("look --find %s prints %s", hash, out)
	}
	if out := must(t, exitError, "look", "--find", "0123456789ab"); !strings.Contains(out, "no key with hash") {
		t.Errorf("look --find prints %s", out)
	}
}

func TestTheHashOfALockThatNoWorkerReportsIsFound(t *testing.T) {
	s := newSystem(t)
	s.client.Set(t.Context(), "railtoken:lock:{order:7}", "another program", time.Minute)
	out := must(t, exitOK, "look", "--find", logsafe.Keys([]string{"order:7"})[0])
	if !strings.Contains(out, "order:7") {
		t.Errorf("look --find prints %s", out)
	}
}

func TestTasksAreCancelled(t *testing.T) {
	s := newSystem(t).work().crowd("order:1", "second", "third")
	if out := must(t, exitError, "cancel", "second"); !strings.Contains(out, "--yes") || s.state("second") != "retry" {
		t.Errorf("cancel without a terminal: %s", out)
	}
	if out := must(t, exitOK, "cancel", "second", "--yes", "--by", "ann", "--why", "ordered twice"); !strings.Contains(out, "default/second is archived") || s.state("second") != "archived" {
		t.Errorf("cancel: %s; it is %s", out, s.state("second"))
	}
	if out := must(t, exitError, "cancel", "second", "--yes"); !strings.Contains(out, "is archived") {
		t.Errorf("a second cancel: %s", out)
	}
	if out := must(t, exitOK, "cancel", "third", "--yes", "--discard"); !strings.Contains(out, "is deleted") || s.state("third") != "" {
		t.Errorf("cancel: %s; it is %s", out, s.state("third"))
	}
	if out := must(t, exitOK, "cancel", "first", "--yes", "--json"); !strings.Contains(out, `"told": true`) {
		t.Errorf("cancel of a running task: %s", out)
	}
	if out := must(t, exitOK, "audit"); !regexp.MustCompile(`cancel +done +order:1 +default/second +ann +ordered twice +archived`).MatchString(out) {
		t.Errorf("audit: %s", out)
	}
}

func TestWaitingTasksAreSteered(t *testing.T) {
	s := newSystem(t).work().crowd("order:1", "second", "third", "fourth")
	must(t, exitOK, "put-first", "default/fourth")
	if out := must(t, exitOK, "waiters", "order:1"); strings.Index(out, "fourth") > strings.Index(out, "second") {
		t.Errorf("after put-first: %s", out)
	}
	must(t, exitOK, "put-last", "second")
	if out := must(t, exitOK, "waiters", "order:1"); strings.Index(out, "second") < strings.Index(out, "third") {
		t.Errorf("after put-last: %s", out)
	}
	if out := must(t, exitError, "drop", "second"); !strings.Contains(out, "--yes") || s.state("second") == "" {
		t.Errorf("drop without a terminal: %s", out)
	}
	must(t, exitOK, "drop", "second", "--yes", "--by", "ann", "--why", "ordered twice")
	if s.state("second") != "" {
		t.Error("a dropped task is still there")
	}
	if out := must(t, exitError, "drop", "second", "--yes"); !strings.Contains(out, "does not wait") {
		t.Errorf("a second drop: %s", out)
	}
	if out := must(t, exitOK, "wake", "order:1"); !strings.Contains(out, "woken: default/fourth; 1 waiting") {
		t.Errorf("wake: %s", out)
	}
	if out := must(t, exitOK, "audit"); !regexp.MustCompile(`drop +done +order:1 +default/second +ann +ordered twice +deleted`).MatchString(out) ||
		!strings.Contains(out, "woken: default/fourth") || !strings.Contains(out, "put-first") {
		t.Errorf("audit: %s", out)
	}
	if out := must(t, exitOK, "wake", "order:2"); !strings.Contains(out, "no task waits") {
		t.Errorf("wake of a key without waiters: %s", out)
	}
	if out := must(t, exitError, "put-first", "first"); !strings.Contains(out, "it is active") {
		t.Errorf("put-first of a running task: %s", out)
	}
}

func TestArchivedTasksAreReplayedByCause(t *testing.T) {
	s := newSystem(t).work().crowd("order:1")
	s.task(middleware.Parked, "limited", "order:1", "late")
	must(t, exitOK, "wake", "order:1")
	s.until("the task is archived at its limit", func() bool { return s.state("late") == "archived" })
	for _, args := range [][]string{
		{"--key", "order:2"}, {"--because", "age"}, {"--dry-run"},
	} {
		must(t, exitOK, append([]string{"replay", "--queue", "default"}, args...)...)
		if s.state("late") != "archived" {
			t.Fatalf("replay %v has replayed the task", args)
		}
	}
	if out := must(t, exitOK, "replay", "--queue", "default", "--dry-run"); !strings.Contains(out, "conflicts") {
		t.Errorf("replay --dry-run: %s", out)
	}
	if out := must(t, exitOK, "audit"); strings.Count(out, "replay  begun") != 2 {
		t.Errorf("the audit has something else than the two replays that were no dry runs: %s", out)
	}
	must(t, exitOK, "replay", "--queue", "default", "--because", "conflicts", "--key", "order:1")
	if out := must(t, exitOK, "audit"); !strings.Contains(out, "replay  done") || !strings.Contains(out, "1 tasks run again") {
		t.Errorf("audit: %s", out)
	}
	if state := s.state("late"); state == "archived" {
		t.Error("the task was not replayed")
	}
	if err := asynq.NewInspectorFromRedisClient(s.client).DeleteTask("default", "none"); err == nil {
		t.Error("there is a task none")
	}
	if out := must(t, exitError, "replay", "--task", "default/none"); !strings.Contains(out, "the task is gone") {
		t.Errorf("replay of no task: %s", out)
	}
	must(t, exitError, "replay", "--queue", "none")
}

func TestBadInputIsRefusedWithItsRemedy(t *testing.T) {
	newSystem(t)
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"loook"}, "unknown command"},
		{[]string{"look"}, "needs a key"},
		{[]string{"look", "a", "--find", "b"}, "needs a key"},
		{[]string{"keys", "--by", "age"}, "waiters, wait or hold"},
		{[]string{"keys", "-n", "0"}, "at least 1"},
		{[]string{"waiters", "-n", "-1"}, "at least 1"},
		{[]string{"wake", "a", "-n", "101"}, "from 1 to 100"},
		{[]string{"watch", "a", "--every", "1ms"}, "at least 200ms"},
		{[]string{"top", "-n", "-1"}, "cannot be negative"},
		{[]string{"replay"}, "queue"},
		{[]string{"replay", "--queue", "q", "--task", "t"}, "queue"},
		{[]string{"replay", "--queue", "q", "--because", "luck"}, "conflicts, age, waiters or total"},
		{[]string{"doctor", "--skip", "luck"}, "no check"},
		{[]string{"keys", "--redis", "redis://:secret@h:1"}, "host:port"},
		{[]string{"keys", "--lock-nodes", "a:1,b:2"}, "at least 3"},
		{[]string{"explain"}, "railtoken explain TASK"},
		{[]string{"depose", "--why", "it hangs"}, "railtoken depose KEY"},
		{[]string{"unlock", "order:1"}, "depose"},
		{[]string{"holders"}, "keys"},
		{[]string{"who", "order:1"}, "look"},
		{[]string{"why", "order:1"}, "explain"},
	} {
		out := must(t, exitError, c.args...)
		if !strings.Contains(out, c.says) || strings.Contains(out, "secret") {
			t.Errorf("railtoken %s: %s; want %q", strings.Join(c.args, " "), out, c.says)
		}
		t.Setenv("RAILTOKEN_LOCK_NODES", "")
	}
}

func TestATaskThatDoesNotExistIsExplained(t *testing.T) {
	newSystem(t)
	if out := must(t, exitFound, "explain", "none"); !strings.Contains(out, "knows no task none:") {
		t.Errorf("explain: %s", out)
	}
}

func TestAPasswordIsNeverShown(t *testing.T) {
	newSystem(t, "--requirepass", "open-sesame", "--appendonly", "yes")
	t.Setenv("RAILTOKEN_REDIS_PASSWORD", "wrong-sesame")
	for _, args := range [][]string{{"keys"}, {"doctor"}, {"doctor", "--json"}, {"explain", "a"}, {"nodes"}, {"top"}, {"--help"}} {
		out, errOut, _ := call(t, args...)
		if strings.Contains(out+errOut, "sesame") {
			t.Errorf("%v shows the password: %s%s", args, out, errOut)
		}
	}
	t.Setenv("RAILTOKEN_REDIS_PASSWORD", "open-sesame")
	must(t, exitOK, "keys")
}

func TestAServerThatIsGoneIsAnError(t *testing.T) {
	s := newSystem(t)
	s.server.Kill()
	for _, args := range [][]string{{"keys"}, {"look", "a"}, {"waiters"}, {"workers"}, {"explain", "a"}, {"wake", "a"}, {"top"}} {
		if out := must(t, exitError, append(args, "--timeout", "5s")...); !strings.Contains(out, "refused") {
			t.Errorf("%v: %s", args, out)
		}
	}
	if out := must(t, exitFound, "doctor"); !strings.Contains(out, "cannot be asked") {
		t.Errorf("doctor: %s", out)
	}
	must(t, exitFound, "nodes")
}

func TestAServerThatHangsEndsWithTheTimeout(t *testing.T) {
	s := newSystem(t)
	s.server.Pause()
	defer s.server.Resume()
	if out := must(t, exitError, "waiters", "--timeout", "300ms"); !strings.Contains(out, "no answer within 300ms (--timeout)") {
		t.Errorf("waiters: %s", out)
	}
}

func TestAWatchGoesOnWhenRedisComesBack(t *testing.T) {
	s := newSystem(t)
	ctx, stop := context.WithCancel(t.Context())
	var out, errOut buffer
	status := make(chan int, 1)
	go func() {
		status <- run(ctx, []string{"watch", "order:1", "--every", "200ms"}, strings.NewReader(""), &out, &errOut)
	}()
	s.until("it sees the key", func() bool { return strings.Contains(out.String(), "free, waiters 0") })
	s.server.Kill()
	s.until("it says that Redis is gone", func() bool { return strings.Contains(errOut.String(), "refused") })
	s.server.Restart(t)
	s.client.Set(t.Context(), "railtoken:lock:{order:1}", "another program", time.Minute)
	s.until("it sees the holder", func() bool { return strings.Contains(out.String(), "held by") })
	stop()
	select {
	case got := <-status:
		if got != exitOK {
			t.Errorf("it ends with %d", got)
		}
	case <-time.After(limit):
		t.Fatal("Ctrl-C does not end it")
	}
}

func TestShellsCompleteKeysAndTasks(t *testing.T) {
	newSystem(t).work().crowd("order:1", "second")
	for _, c := range []struct{ command, want string }{{"look", "order:1"}, {"explain", "default/second"}, {"drop", "default/second"}} {
		if out := must(t, exitOK, "__complete", c.command, ""); !strings.Contains(out, c.want) {
			t.Errorf("%s completes %s", c.command, out)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out := must(t, exitOK, "completion", shell); !strings.Contains(out, "railtoken") {
			t.Errorf("no completion for %s", shell)
		}
	}
}

func TestAJoinedErrorIsShownOnOneLine(t *testing.T) {
	if got := line("first\nsecond\x1b[2J"); got != "first; second?[2J" {
		t.Errorf("%q", got)
	}
}

func TestOnlyWholeKeysAreHidden(t *testing.T) {
	t.Parallel()
	hash := logsafe.Keys([]string{"a"})[0]
	for text, want := range map[string]string{
		"key a is held":      "key " + hash + " is held",
		`key "a" has a task`: `key "` + hash + `" has ` + hash + " task",
		"aa ba ab {a}":       "aa ba ab {" + hash + "}",
		"a":                  hash,
		"":                   "",
	} {
		if got := hideIn(text, "a"); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
	if got := hideIn(`of "\x1b[31m"`, "\x1b[31m"); strings.Contains(got, "31m") {
		t.Errorf("%q shows the key", got)
	}
	if got := hideIn("order:12 order:1", "order:1"); !strings.HasPrefix(got, "order:12 ") || strings.HasSuffix(got, "order:1") {
		t.Errorf("%q", got)
	}
}
