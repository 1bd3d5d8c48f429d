package prometheus_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railtoken/railtoken/attach"
)

// incident records what happens in an installation of two workers in virtual time. Then Prometheus replays it: exactly these
// alerts must fire. The wants are about single moments.
func incident(t *testing.T, happens func(in *installation) (alerts []string, wants []want)) {
	t.Parallel()
	incidentWith(t, attach.Recovery{}, happens)
}

// incidentWith does the same with workers that recover the tasks of dead ones so.
func incidentWith(t *testing.T, recovery attach.Recovery, happens func(in *installation) (alerts []string, wants []want)) {
	t.Helper()
	var rec *recording
	var alerts []string
	var wants []want
	synctest.Test(t, func(t *testing.T) {
		in := newInstallation(t, recovery)
		rec = in.rec
		alerts, wants = happens(in)
	})
	rec.check(t, append(wants, rec.fired(alerts...))...)
	rec.replay(t, alerts)
}

// firing counts the alerts of a name that fire.
const firing = `count by (alertname) (count by (alertname) (ALERTS{alertname="%s",alertstate="firing"}))`

func TestAHotKeyFiresOldestWaitAlone(t *testing.T) {
	incident(t, func(in *installation) ([]string, []want) {
		in.quiet(5 * time.Minute)
		in.pass(15*time.Minute, 2*time.Second, func(n int) {
			in.enqueue("hot", 4*time.Second)
			if n%3 == 0 {
				in.enqueue(fmt.Sprint("free:", n), 100*time.Millisecond)
			}
		})
		return []string{"RailtokenOldestWait"}, nil
	})
}

func TestADeadWorkerFiresWorkersDieAlone(t *testing.T) {
	t.Parallel()
	workersDie(t, attach.Recovery{}, "RailtokenWorkersDie")
}

// Nobody wakes the tasks that waited for the keys of the dead.
func TestADeadWorkerWithoutRecoveryFiresWakesLostAlone(t *testing.T) {
	t.Parallel()
	workersDie(t, attach.Recovery{After: -1}, "RailtokenWakesLost")
}

// workersDie has four workers die, each while others wait for the keys of its tasks: one alert fires.
func workersDie(t *testing.T, recovery attach.Recovery, alert string) {
	t.Helper()
	incidentWith(t, recovery, func(in *installation) ([]string, []want) {
		in.quiet(5 * time.Minute)
		for worker := range 4 { // each of them dies once, when all of its slots hold keys for which others wait
			for n := range 2 * slotsOfWorker {
				in.enqueue(fmt.Sprint("held:", worker, n), 10*time.Second)
			}
			in.pass(time.Second, time.Second, nil)
			for n := range 2 * slotsOfWorker {
				in.enqueue(fmt.Sprint("held:", worker, n), 100*time.Millisecond)
			}
			in.pass(5*time.Second, time.Second, nil)
			in.workers[worker].dead.Store(true)
			in.workers = append(in.workers, in.start(fmt.Sprint(3+worker)))
			in.quiet(2 * time.Minute)
		}
		in.quiet(20 * time.Minute)
		return []string{alert}, nil
	})
}

func TestAHungRedisFiresUnavailableAlone(t *testing.T) {
	incident(t, func(in *installation) ([]string, []want) {
		in.quiet(5 * time.Minute)
		in.hung.Store(true)
		in.quiet(200 * time.Second)
		in.hung.Store(false)
		in.quiet(15 * time.Minute)
		return []string{"RailtokenUnavailable"}, []want{
			{5*time.Minute + 195*time.Second, fmt.Sprintf(firing, "RailtokenUnavailable"), []string{`{alertname="RailtokenUnavailable"}`}},
			{10 * time.Minute, fmt.Sprintf(firing, "RailtokenUnavailable"), nil},
		}
	})
}

func TestALongOutageKeepsFiring(t *testing.T) {
	incident(t, func(in *installation) ([]string, []want) {
		in.quiet(2 * time.Minute)
		in.hung.Store(true)
		in.quiet(28 * time.Minute)
		var wants []want
		for at := 4 * time.Minute; at < 30*time.Minute; at += time.Minute {
			wants = append(wants, want{at, fmt.Sprintf(firing, "RailtokenUnavailable"), []string{`{alertname="RailtokenUnavailable"}`}})
		}
		in.hung.Store(false)
		return []string{"RailtokenInspectDown", "RailtokenUnavailable"}, wants
	})
}

func TestSaturatedWorkersFireWakeSlowAlone(t *testing.T) {
	incident(t, func(in *installation) ([]string, []want) {
		in.quiet(5 * time.Minute)
		in.pass(13*time.Minute, time.Second, func(int) { // work for 9 of 8 slots
			in.enqueue(fmt.Sprint("busy:", rand.IntN(12)), 4*time.Second)
			in.enqueue(fmt.Sprint("busy:", rand.IntN(12)), 5*time.Second)
		})
		return []string{"RailtokenWakeSlow"}, nil
	})
}

func TestABlipFiresNothing(t *testing.T) {
	incident(t, func(in *installation) ([]string, []want) {
		in.quiet(5 * time.Minute)
		in.pass(5*time.Minute, time.Second, func(n int) {
			for range 3 {
				in.enqueue(fmt.Sprint("busy:", rand.IntN(4)), 300*time.Millisecond)
			}
			in.hung.Store(n >= 60 && n < 65)
		})
		in.quiet(10 * time.Minute)
		return nil, nil
	})
}
