package main

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

func TestAHeldKeyNeverLooksFree(t *testing.T) {
	s := newSystem(t)
	s.unreported = true
	s.work().crowd("order:1", "second")
	row := regexp.MustCompile(`order:1 +1 +\S+ +\(not reported\) +audit +\S+ +\S+/\d+\n`)
	for _, args := range [][]string{{"keys"}, {"top", "-n", "1"}} {
		if out := must(t, exitOK, args...); !row.MatchString(out) {
			t.Errorf("%s prints %s", args[0], out)
		}
	}
	s.client.Del(t.Context(), "railtoken:lock:{order:1}")
	if out := must(t, exitOK, "keys"); !regexp.MustCompile(`order:1 +1 +\S+ +- +- +- +-\n`).MatchString(out) {
		t.Errorf("of a free key, keys prints %s", out)
	}
}

func TestLookSaysThatAWorkerIsSilent(t *testing.T) {
	s := newSystem(t).work().crowd("order:1", "second")
	// As if its worker had been stopped 22 s ago.
	ends := float64(time.Now().Add(8 * time.Second).Unix())
	s.client.ZAddXX(t.Context(), "asynq:{default}:lease", redis.Z{Score: ends, Member: "first"})
	if out := must(t, exitOK, "look", "order:1"); !strings.Contains(out, "silent   its worker has not been heard of for 2") {
		t.Errorf("look prints %s", out)
	}
	s.client.ZAddXX(t.Context(), "asynq:{default}:lease", redis.Z{Score: ends, Member: "first"})
	if out := must(t, exitOK, "look", "order:1", "--json"); !strings.Contains(out, `"worker_silent_seconds": 2`) {
		t.Errorf("look --json prints %s", out)
	}
}

func TestSteeringAFullRedisNamesTheCause(t *testing.T) {
	s := newSystem(t).work().crowd("order:1", "second")
	if err := s.client.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"wake", "order:1"}, {"put-first", "second"}} {
		if out := must(t, exitError, args...); !strings.Contains(out, "the Redis of the tasks refuses writes, and railtoken doctor says what to do: OOM") {
			t.Errorf("%s prints %s", args[0], out)
		}
	}
}

func TestWakeSaysWhyNoTaskCanBeWoken(t *testing.T) {
	s := newSystem(t).work().crowd("order:1", "second")
	if err := asynq.NewInspectorFromRedisClient(s.client).PauseQueue("default"); err != nil {
		t.Fatal(err)
	}
	out := must(t, exitOK, "wake", "order:1")
	if !strings.Contains(out, `no task can be woken now; 1 waiting, the first is default/second: queue "default" is paused. resume the queue`) {
		t.Errorf("wake prints %s", out)
	}
}
