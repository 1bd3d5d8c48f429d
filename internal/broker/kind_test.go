package broker

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/asynqtest"
)

// A script that is not known is judged by the names of its keys.
func TestAnUnknownScriptIsJudgedByItsKeys(t *testing.T) {
	t.Parallel()
	active, lease, paused, task := "asynq:{q}:active", "asynq:{q}:lease", "asynq:{q}:paused", "asynq:{q}:t:a"
	for _, tc := range []struct {
		keys []string
		want Kind
	}{
		{nil, Other},
		{[]string{active}, Other},
		{[]string{lease}, Other},
		{[]string{active, task}, Other},
		{[]string{lease, task}, Other},
		{[]string{active, lease}, Other},
		{[]string{active, lease, task}, Ack},
		{[]string{task, lease, active, "asynq:{q}:pending"}, Ack},
		{[]string{active, lease, paused}, Fetch},
		{[]string{paused, active, lease, task}, Fetch},
		{[]string{active, lease, task, "mine"}, Other},
	} {
		if kind, known := KindOf("1234", tc.keys); kind != tc.want || known {
			t.Errorf("%v: kind %d, known %v", tc.keys, kind, known)
		}
	}
	for sum, name := range scripts {
		if kind, known := KindOf(sum, nil); kind != kinds[name] || !known {
			t.Errorf("%s: kind %d, known %v", name, kind, known)
		}
	}
	if n := len(Regular()); n != 2 {
		t.Errorf("%d scripts are run by every server, want forward and writeServerState", n)
	}
}

// What is no enqueue passes an Enqueuer as it is, without a question if it is known.
func TestAnEnqueuerAsksAboutEnqueuesAlone(t *testing.T) {
	t.Parallel()
	sent, asked := 0, 0
	client := NewEnqueuer(&answers{look: func() error {
		sent++
		return nil
	}}, func(context.Context, Enqueuing) *redis.Cmd {
		asked++
		return nil
	})
	if err := client.EvalSha(t.Context(), sumNamed(t, "writeSchedulerEntries"), nil).Err(); err != nil || sent != 1 || asked != 0 {
		t.Errorf("%v; sent %d times, asked %d times", err, sent, asked)
	}
	if err := client.EvalSha(t.Context(), "1234", nil).Err(); err != nil || sent != 2 || asked != 1 {
		t.Errorf("%v; sent %d times, asked %d times", err, sent, asked)
	}
	for script, now := range map[string]bool{"enqueue": true, "enqueueUnique": true, "schedule": false, "addToGroup": false, "": false} {
		if got := (Enqueuing{Script: script}).Now(); got != now {
			t.Errorf("%q is for now: %v", script, got)
		}
	}
}

func TestTheCallOfAScriptIsRead(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args           []any
		sum, keys, arg string
	}{
		{[]any{"evalsha", "abc"}, "", "", ""},
		{[]any{"evalsha", "abc", 0}, "abc", "", ""},
		{[]any{"evalsha", "abc", 2, "k", "l", "v", "w"}, "abc", "k l", "v w"},
		{[]any{"evalsha", "abc", 3, "k", "l"}, "abc", "k l", ""},
		{[]any{"EVAL", "return 1", 1, "k", "v"}, sumOf("return 1"), "k", "v"},
	} {
		sum, keys, values := calledWith(tc.args)
		var texts []string
		for _, v := range values {
			texts = append(texts, textOf(v))
		}
		if sum != tc.sum || strings.Join(keys, " ") != tc.keys || strings.Join(texts, " ") != tc.arg {
			t.Errorf("%v: %q of %v with %v", tc.args, sum, keys, texts)
		}
	}
}

func TestTheVerdictNeedsEachScript(t *testing.T) {
	t.Parallel()
	all := map[string]bool{}
	for name := range kinds {
		all[name] = true
	}
	for _, tc := range []struct {
		name     string
		lacks    string
		why      error
		other    bool
		ok, sure bool
	}{
		{name: "all", ok: true},
		{name: "all, in an hour", why: errSlow},
		{name: "all, with another error", why: errDummy, sure: false},
		{name: "one lacks", lacks: "retry", sure: true},
		{name: "one lacks in time", lacks: "retry", why: errDummy, sure: true},
		{name: "one lacks, late", lacks: "retry", why: errSlow},
		{name: "one lacks, late, and another was sent", lacks: "retry", why: errSlow, other: true, sure: true},
	} {
		d := &dummy{seen: map[string]bool{}, other: tc.other}
		for name := range all {
			d.seen[name] = name != tc.lacks
		}
		err := d.verdict(tc.why)
		if (err == nil) != tc.ok || errors.Is(err, ErrAsynq) != tc.sure {
			t.Errorf("%s: %v", tc.name, err)
		}
		if tc.sure && !strings.Contains(err.Error(), tc.lacks) || !tc.ok && !tc.sure && !errors.Is(err, tc.why) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// asynq may take nearly half a minute. From then on the texts of its acknowledgements are at hand.
func TestAsynqHasHalfAMinute(t *testing.T) { // not beside others: what this process has sent is forgotten
	archive := sumNamed(t, "archive")
	texts.Delete(archive)
	synctest.Test(t, func(t *testing.T) {
		slept := false
		err := recognise(func(c redis.UniversalClient) redis.UniversalClient {
			return asynqtest.OtherVersion{UniversalClient: c, Changed: func(sum string, _ []string) bool {
				if scripts[sum] == "dequeue" && !slept {
					slept = true
					time.Sleep(recogniseLimit - time.Second)
				}
				return false
			}}
		})
		if err != nil {
			t.Error(err)
		}
	})
	if _, ok := texts.Load(archive); !ok {
		t.Error("the text of a script is not at hand")
	}
}
