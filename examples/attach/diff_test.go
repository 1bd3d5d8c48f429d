package attach

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// most is how many lines an app needs to have locks.
const most = 12

func TestAttachingTakesTwelveLinesAtMost(t *testing.T) {
	t.Parallel()
	read := func(name string) []string {
		text, err := os.ReadFile(filepath.Join(name, "main.go"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(string(text), "\n")
	}
	plain, attached := read("plain"), read("attached")
	added := slices.DeleteFunc(slices.Clone(attached), func(line string) bool { return slices.Contains(plain, line) })
	gone := slices.DeleteFunc(plain, func(line string) bool { return slices.Contains(attached, line) })
	if len(added) > most || len(gone) > len(added) {
		t.Errorf("%d lines are new, want at most %d:\n%s", len(added), most, strings.Join(added, "\n"))
	}
}

func TestTheAttachedAppWorksOnAnOrderOnce(t *testing.T) {
	t.Parallel()
	for name, exclusive := range map[string]bool{"plain": false, "attached": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := filepath.Join(t.TempDir(), name)
			if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./"+name).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			app := exec.CommandContext(ctx, program, "-redis", redistest.Start(t).Addr())
			pipe, err := app.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := app.Start(); err != nil {
				t.Fatal(err)
			}
			var said []string
			working, ended, overlaps := map[string]int{}, 0, 0
			for log := bufio.NewScanner(pipe); log.Scan(); {
				said = append(said, log.Text())
				fields := strings.Fields(log.Text()) // date, time, what, order, begins or ends
				if len(fields) != 5 {
					continue
				}
				switch id := fields[3]; fields[4] {
				case "begins":
					working[id]++
					if working[id] > 1 {
						overlaps++
					}
				case "ends":
					working[id]--
					ended++
				}
				if ended == 6 {
					_ = app.Process.Signal(syscall.SIGTERM)
				}
			}
			if err := app.Wait(); err != nil {
				t.Errorf("%v\n%s", err, strings.Join(said, "\n"))
			}
			if ended != 6 || exclusive && overlaps > 0 || !exclusive && overlaps == 0 {
				t.Errorf("%d of 6 tasks ended, and %d met another one on their order:\n%s", ended, overlaps, strings.Join(said, "\n"))
			}
		})
	}
}
