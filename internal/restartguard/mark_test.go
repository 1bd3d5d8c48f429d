package restartguard_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/leasing"
	"github.com/railtoken/railtoken/internal/restartguard"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// A clock that was set forward makes a server look old. The first client of the server waits all the same, and those
// that come later find its mark.
func TestOnlyTheFirstClientOfAServerWaits(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	node := func() *restartguard.Node { return newGuard(t, 1, restartguard.Options{MaxTTL: maxTTL}).Node(0) }
	first := node()
	c := protected(t, s, first, nil)
	refusedFor(t, c.Ping(t.Context()).Err(), restartguard.Young)
	accepted(t, first, c)
	if err := protected(t, s, node(), nil).Ping(t.Context()).Err(); err != nil {
		t.Errorf("a second client: %v", err)
	}
	longer := newGuard(t, 1, restartguard.Options{MaxTTL: maxTTL + time.Minute}).Node(0)
	refusal := refusedFor(t, protected(t, s, longer, nil).Ping(t.Context()).Err(), restartguard.Young)
	if left := time.Until(refusal.Until); left > time.Minute {
		t.Errorf("a client with a longer MaxTTL waits for %v, though the server was watched for %v", left, maxTTL)
	}
	s.Kill()
	s.Restart(t)
	if mark := s.Client(t).Get(t.Context(), restartguard.MarkKey).Val(); mark != "" {
		t.Logf("the server has kept the mark %.8s", mark)
	}
	refusedFor(t, protected(t, s, node(), nil).Ping(t.Context()).Err(), restartguard.Young)
}

// mostMark returns the mark of the longest watch, and so many milliseconds more.
func mostMark(more int64) string {
	return fmt.Sprint(idA, " ", idB, " ", leasing.Most.Milliseconds()+more)
}

func TestAMarkSurvivesNoRestartAndNoPromotion(t *testing.T) {
	t.Parallel()
	f := restartguard.Facts{RunID: idA, ReplID: idB}
	for mark, want := range map[string]time.Duration{
		"":                              0,
		"garbage":                       0,
		idA + " " + idB + " 55000":      55 * time.Second,
		idA + " " + idB + " 1":          time.Millisecond,
		idA + " " + idB + " 0":          0,
		mostMark(-1):                    leasing.Most - time.Millisecond,
		mostMark(0):                     0,
		idC + " " + idB + " 55000":      0,
		idA + " " + idC + " 55000":      0,
		idA + " " + idB:                 0,
		idA + " " + idB + " ":           0,
		idA + " " + idB + " -1":         0,
		idA + " " + idB + " 55000 more": 0,
		idA + " " + idB + " " + strings.Repeat("9", 18): 0,
	} {
		if got := f.Marked(mark).Watched; got != want {
			t.Errorf("%q: watched for %v, want %v", mark, got, want)
		}
		before := f
		before.Watched = time.Hour // what an earlier mark said
		if got := before.Marked(mark).Watched; got != want {
			t.Errorf("%q: watched for %v after an earlier mark, want %v", mark, got, want)
		}
	}
	if nobody := (restartguard.Facts{}); nobody.Marked("  55000").Watched != 0 {
		t.Error("a server without an identity was watched")
	}
}

// A user without a right to the mark, and a mark of another type, cost the wait and nothing else.
func TestAMarkThatCannotBeReadIsNone(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	admin := s.Client(t)
	do(t, admin, "ACL", "SETUSER", "lock", "on", ">secret", "~other:*", "&*", "+@all")
	do(t, admin, "LPUSH", restartguard.MarkKey, "x")
	for _, mod := range []func(*redis.Options){
		func(o *redis.Options) { o.Username, o.Password = "lock", "secret" },
		func(*redis.Options) {},
	} {
		n := newGuard(t, 1, restartguard.Options{MaxTTL: maxTTL}).Node(0)
		c := protected(t, s, n, nil, mod)
		refusedFor(t, c.Ping(t.Context()).Err(), restartguard.Young)
		accepted(t, n, c)
	}
	if err := admin.Get(context.Background(), restartguard.MarkKey).Err(); err != nil {
		t.Errorf("the mark was not mended: %v", err)
	}
}
