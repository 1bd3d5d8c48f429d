package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/railtoken/railtoken/internal/holdings"
	"github.com/railtoken/railtoken/middleware"
)

// hostile is text that would forge a line, clear the screen, rename the window, overwrite the line, or turn the rest of it around.
const hostile = "x\nForged: all is well\r\x1b[2J\x1b]0;own\x07\u009b31m\u202e\x7f$(touch owned)\tForged"

func TestHostileTextSteersNoCommand(t *testing.T) {
	const key, id = "order:" + hostile, "task" + hostile
	s := newSystem(t).work().crowd(key, id)
	s.task(middleware.Parked, "limited", key, "late"+hostile)
	must(t, exitOK, "wake", key, "--most", "2", "--by", "ann"+hostile, "--why", "because"+hostile)
	s.until("the task is archived at its limit", func() bool { return s.state("late"+hostile) == "archived" })
	s.client.Set(t.Context(), "railtoken:lock:{free:"+hostile+"}", "another program"+hostile, time.Minute)
	s.until("the worker has reported the holder", func() bool {
		names := s.client.Keys(t.Context(), holdings.Key("*")).Val()
		return len(names) == 1 && strings.Contains(s.client.Get(t.Context(), names[0]).Val(), `"task":"first"`)
	})
	s.forgeReport()

	calls := map[string][][]string{
		"keys": {{}, {"--scan"}, {"--by", hostile}}, "look": {{key}, {"free:" + hostile}, {"unused" + hostile}, {"--find", hostile}},
		"waiters": {{}, {key}}, "workers": {{}}, "nodes": {{}}, "explain": {{id}, {"first"}, {"none" + hostile}, {hostile + "/" + id}},
		"doctor": {{"--max-wait", "1ns"}, {"--skip", hostile}}, "audit": {{}}, "watch": {{key, "-n", "1"}},
		"top":       {{"-n", "1"}},
		"admin":     {{"--listen", hostile}, {"--listen", "127.0.0.1:0", "--timeout", "50ms"}, {"--health", hostile}},
		"depose":    {{key, "--yes", "--expect", hostile, "--why", hostile}, {key, "--yes", "--why", hostile}},
		"wake":      {{key}, {"unused" + hostile}},
		"put-first": {{id}, {"none" + hostile}}, "put-last": {{id}, {"none" + hostile}},
		"drop":      {{"none" + hostile, "--yes"}, {id}, {id, "--yes"}},
		"cancel":    {{"none" + hostile, "--yes"}, {id}, {id, "--yes", "--by", hostile, "--why", hostile}, {"first", "--yes", "--discard"}},
		"replay":    {{"--queue", "default", "--dry-run"}, {"--queue", hostile}, {"--task", "default/none" + hostile}, {"--queue", "default"}},
		"lanes":     {{hostile}, {"plan", "--queue", hostile}, {"move", "--yes", "--queue", hostile}},
		"pause":     {{hostile}, {"default", "--why", hostile}},
		"unpause":   {{hostile}, {"default", "--by", hostile}},
		"uninstall": {{"--yes"}, {hostile}},
		"help":      {{hostile}}, "completion": {{hostile}}, hostile: {{}},
		cobra.ShellCompRequestCmd: {{"look", ""}, {"explain", ""}, {"drop", "default/"}, {hostile, ""}},
	}
	all := (&app{}).root()
	all.InitDefaultHelpCmd()
	all.InitDefaultCompletionCmd()
	for _, c := range all.Commands() {
		if calls[c.Name()] == nil {
			t.Errorf("no call with hostile text of %s", c.Name())
		}
	}
	for name, lists := range calls {
		for _, args := range lists {
			for _, extra := range [][]string{nil, {"--json"}} {
				if extra != nil && slices.Contains([]string{"admin", "help", "completion", cobra.ShellCompRequestCmd}, name) {
					continue // they print no JSON
				}
				args := slices.Concat([]string{name}, args, extra)
				out, errOut, _ := call(t, args...)
				if extra != nil && out != "" && !json.Valid([]byte(out)) {
					t.Errorf("%q prints no JSON: %q", args, out)
				}
				for text := range strings.SplitSeq(out+errOut, "\n") {
					if strings.HasPrefix(text, "Forged") || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) && r != '\t' }) {
						t.Errorf("%q prints %q", args, text)
					}
					if name == cobra.ShellCompRequestCmd && strings.Contains(text, "$(") {
						t.Errorf("%q offers a command to the shell: %q", args, text)
					}
				}
			}
		}
	}
}

// forgeReport adds the report of a worker that has hostile text wherever a report has text.
func (s *system) forgeReport() {
	s.Helper()
	now := time.Now().UnixMilli()
	text, err := json.Marshal(holdings.Worker{
		Host: hostile, Version: hostile, Config: hostile, Backend: hostile, Since: now, Queues: map[string]int{hostile: 1}, Keys: 1,
		Held: []holdings.Held{{Key: []byte("held:" + hostile), Queue: hostile, ID: hostile, Type: hostile, Since: now, Mode: hostile}},
	})
	if err != nil {
		s.Fatal(err)
	}
	s.client.Set(s.Context(), holdings.Key(hostile), text, time.Minute)
	s.client.ZAdd(s.Context(), holdings.Workers, redis.Z{Score: float64(now), Member: hostile})
}
