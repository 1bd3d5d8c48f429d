package chaos

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

var (
	runFor    = flag.Duration("for", 2*time.Second, "how `long` the nemesis is at work on railtoken; a sixth of that on each control")
	runEvery  = flag.Duration("every", 100*time.Millisecond, "mean `time` from one event to the next")
	runSeed   = flag.Uint64("seed", 1, "`seed` of the events")
	runReport = flag.String("report", "", "`file` to write the table to")
	runLong   = flag.Bool("long", false, "a run of this length must show damage in every control")
)

// limit bounds every wait.
const limit = 30 * time.Second

const (
	clients = 4
	keys    = 12
)

// The variables of a client process.
const (
	subjectVariable = "CHAOS_SUBJECT"
	numberVariable  = "CHAOS_NUMBER"
	serversVariable = "CHAOS_SERVERS"
	ledgerVariable  = "CHAOS_LEDGER"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis tells of each connection that breaks
	if subject := os.Getenv(subjectVariable); subject != "" {
		if err := work(subject); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// work is a client process.
func work(subject string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	n, err := strconv.Atoi(subject)
	if err != nil {
		return err
	}
	number, err := strconv.Atoi(os.Getenv(numberVariable))
	if err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Addr: os.Getenv(ledgerVariable)})
	defer client.Close()
	s := Subjects[n]
	return s.Work(ctx, number, strings.Split(os.Getenv(serversVariable), ","), Ledger{client, s.Fenced}, Keys(keys), os.Stdout)
}

func TestLocksUnderChaos(t *testing.T) {
	clocks := NewClocks(t)
	if clocks == nil && *runLong {
		t.Fatal("the page tells of clocks that step, which takes Linux")
	}
	var rows []Row
	for n, subject := range Subjects {
		t.Run(subject.Name, func(t *testing.T) {
			total := *runFor
			if subject.Damage != nil {
				total = max(total/6, 2*time.Second)
			}
			s := &system{T: t, subject: n, clocks: clocks}
			s.start()
			events := s.torment(rand.New(rand.NewPCG(*runSeed, uint64(n))), total)
			row := s.judge(events)
			t.Log(row)
			rows = append(rows, row)
			if row.Leases == 0 || row.Accepted == 0 || events == 0 {
				t.Error("that shows nothing")
			}
			if subject.Damage == nil && row.Damage() > 0 {
				t.Error("that is damage")
			}
			if subject.Damage != nil && *runLong && subject.Damage(row) == 0 {
				t.Error("the control shows no damage, so the run proves nothing")
			}
		})
	}
	if *runReport != "" && !t.Failed() {
		if err := Report(*runReport, rows, *runFor); err != nil {
			t.Fatal(err)
		}
	}
}

// judge judges what the clients have told, and what the ledger has.
func (s *system) judge(events int) Row {
	s.Helper()
	subject := Subjects[s.subject]
	all := Closed(s.history)
	row := Row{Subject: subject, Events: events}
	for _, r := range all {
		switch r.Kind {
		case Begins:
			row.Leases++
		case Refused:
			row.Refused++
		case Ends:
			if r.Return == Never {
				row.Lost++
			}
		}
	}
	row.Duplicates, row.Disordered = Tokens(all)
	row.AtOnce = Linearizable(all)
	var err error
	row.Accepted, row.LostUpdates, row.Late, err = Ledger{s.ledger.Client(s), subject.Fenced}.Audit(s.Context(), Keys(keys))
	if err != nil {
		s.Fatal(err)
	}
	return row
}
