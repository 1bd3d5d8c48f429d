package broker

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestAFailedAcknowledgementIsKnownForAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var u unended
		u.put("q", "a", "run of a")
		time.Sleep(repeatedFor)
		u.put("q", "b", "run of b")
		if run := u.take("q", "a"); run != "run of a" {
			t.Errorf("after a minute the run is %q", run)
		}
		if run := u.take("q", "a"); run != "" {
			t.Errorf("a run that was taken is %q", run)
		}
		time.Sleep(repeatedFor + 1)
		u.put("q", "c", "run of c")
		if run := u.take("q", "b"); run != "" {
			t.Errorf("after more than a minute the run is %q", run)
		}
		if run := u.take("q", "c"); run != "run of c" || len(u.runs) != 0 {
			t.Errorf("the run is %q, and left are %v", run, u.runs)
		}
	})
}

func TestATaskIsInASetOnce(t *testing.T) {
	t.Parallel()
	var set taskSet
	if set.remove("q", "a") {
		t.Error("a task is in an empty set")
	}
	set.add("q", "a")
	set.add("q", "a")
	set.add("q", "b")
	if set.remove("q", "c") || set.remove("r", "a") {
		t.Error("the set has a task that nobody has added")
	}
	if !set.remove("q", "a") || set.remove("q", "a") || !set.remove("q", "b") {
		t.Error("a task is not in the set once")
	}
	if n := set.size.Load(); n != 0 {
		t.Errorf("%d tasks are left", n)
	}
}
