package tasks

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/railtoken/railtoken/internal/verify/chaos"
)

var (
	runTasks  = flag.Int("tasks", 5000, "`number` of tasks of railtoken; a sixth of that for each control")
	runFor    = flag.Duration("for", 15*time.Second, "how `long` they are produced, and the nemesis is at work; a sixth of that on each control")
	runEvery  = flag.Duration("every", 400*time.Millisecond, "mean `time` from one event to the next")
	runSeed   = flag.Uint64("seed", 1, "`seed` of the tasks and events")
	runReport = flag.String("report", "", "`file` to write the table to")
	runLong   = flag.Bool("long", false, "run the controls, too: a run of this length must show damage in each")
	runOnly   = flag.Int("only", -1, "`number` of the one subject to run")
	runLogs   = flag.String("logs", "", "`folder` for what the workers log")
)

// settingsVariable makes the test binary a worker process.
const settingsVariable = "CHAOS_TASKS"

func TestMain(m *testing.M) {
	logging.Disable() // go-redis tells of each connection that breaks
	if settings := os.Getenv(settingsVariable); settings != "" {
		if err := work(settings); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// work is a worker process. It shuts down when the test closes its standard input, or ends.
func work(settings string) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
		time.AfterFunc(time.Minute, func() { os.Exit(1) }) // it hangs
	}()
	var s Settings
	if err := json.Unmarshal([]byte(settings), &s); err != nil {
		return err
	}
	return s.Work(ctx, os.Stderr)
}

func TestTasksUnderChaos(t *testing.T) {
	clocks := chaos.NewClocks(t)
	if clocks == nil && *runLong {
		t.Fatal("the page tells of clocks that step, which takes Linux")
	}
	var rows []Row
	for n, subject := range Subjects {
		if only := *runOnly; only >= 0 && only != n || only < 0 && subject.Shows != nil && !*runLong {
			continue
		}
		t.Run(subject.Name, func(t *testing.T) {
			total, number := *runFor, *runTasks
			if subject.Shows != nil {
				total, number = total/6, number/6
			}
			s := &system{T: t, subject: n, clocks: clocks, random: rand.New(rand.NewPCG(*runSeed, uint64(n)))}
			s.tasks = Tasks(s.random, number)
			s.start()
			row := s.run(total)
			t.Log(row)
			rows = append(rows, row)
			if row.Effects == 0 || row.Events == 0 {
				t.Error("that shows nothing")
			}
			if subject.Shows == nil && row.Damage() > 0 {
				t.Error("that is damage")
				t.Logf("What has happened:\n%s\nWhat has come of it:\n%s", strings.Join(s.log, "\n"), strings.Join(row.Notes, "\n"))
			}
			if subject.Shows != nil && *runLong && slices.Min(subject.Shows(row)) == 0 {
				t.Error("the control shows no damage, so the run proves nothing")
			}
		})
	}
	if *runLong && *runOnly < 0 {
		for _, c := range Shown {
			if !slices.ContainsFunc(rows, func(r Row) bool { return r.Subject.Shows != nil && c.Count(r) > 0 }) {
				t.Errorf("no control shows %s, so the run proves nothing", c.Name)
			}
		}
	}
	if *runReport != "" && !t.Failed() {
		if err := Report(*runReport, rows, *runFor); err != nil {
			t.Fatal(err)
		}
	}
}
