package broker

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// keeper is a client that tells which keys it was asked for.
type keeper struct {
	redis.UniversalClient
	exist int64
	err   error
	asked [][]string
}

func (k *keeper) Exists(ctx context.Context, keys ...string) *redis.IntCmd {
	k.asked = append(k.asked, slices.Sorted(slices.Values(keys)))
	cmd := redis.NewIntCmd(ctx)
	cmd.SetVal(k.exist)
	cmd.SetErr(k.err)
	return cmd
}

var (
	pendingKeys = []string{"asynq:{1}:pending", "asynq:{default}:pending"}
	delayedKeys = []string{"asynq:{1}:retry", "asynq:{1}:scheduled", "asynq:{default}:retry", "asynq:{default}:scheduled"}
)

// A fetch is spared only after one that has found nothing, and only if Redis says that no queue has tasks.
func TestALookSparesAFetch(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name          string
		atOnce, empty bool
		exist         int64
		err           error
		looks         int
		want          bool
	}{
		{"nothing is pending", true, true, 0, nil, 1, true},
		{"something is pending", true, true, 1, nil, 1, false},
		{"Redis is away", true, true, 0, errors.New("away"), 1, false},
		{"the last fetch has found a task", true, false, 0, nil, 0, false},
		{"the queues are on several nodes", false, true, 0, nil, 0, false},
	} {
		k := &keeper{exist: tc.exist, err: tc.err}
		l := newLook(k, Options{Queues: numbered(2)}, tc.atOnce)
		if l.inVain(t.Context()) {
			t.Errorf("%s: the first fetch is spared", tc.name)
		}
		l.fetched(tc.empty)
		if got := l.inVain(t.Context()); got != tc.want || len(k.asked) != tc.looks {
			t.Errorf("%s: a fetch is in vain: %v, after %d looks", tc.name, got, len(k.asked))
		}
		for _, keys := range k.asked {
			if !slices.Equal(keys, pendingKeys) {
				t.Errorf("%s: it has looked for %v", tc.name, keys)
			}
		}
	}
}

func TestALookIsForTheKeyBesideWhenThatIsDue(t *testing.T) {
	t.Parallel()
	for _, due := range []bool{false, true} {
		for exist := range int64(2) {
			none := 0
			k := &keeper{exist: exist}
			l := newLook(k, Options{
				Queues: numbered(2), Beside: Beside{Key: "asynq:{a}", Due: func() bool { return due }, None: func() { none++ }},
			}, true)
			l.fetched(true)
			if got := l.inVain(t.Context()); got != (exist == 0) {
				t.Errorf("due %v, %d keys: in vain: %v", due, exist, got)
			}
			want := pendingKeys
			if due {
				want = slices.Sorted(slices.Values(append(slices.Clone(pendingKeys), "asynq:{a}")))
			}
			if len(k.asked) != 1 || !slices.Equal(k.asked[0], want) {
				t.Errorf("due %v: it has looked for %v", due, k.asked)
			}
			if (none == 1) != (due && exist == 0) {
				t.Errorf("due %v, %d keys: it was told %d times that there is none", due, exist, none)
			}
		}
	}
}

// asynq forwards queue by queue: one look answers for a round. Each 5 s its own script runs all the same.
func TestAForwardIsSparedWhileNothingIsDelayed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := &keeper{}
		l := newLook(k, Options{Queues: numbered(2)}, true)
		wants := func(when string, nothing bool, looks int) {
			t.Helper()
			if got := l.forwardsNothing(t.Context()); got != nothing || len(k.asked) != looks {
				t.Errorf("%s: nothing is delayed: %v, after %d looks; want %v after %d", when, got, len(k.asked), nothing, looks)
			}
		}
		wants("before the first forward", false, 0)
		l.forwarded()
		wants("after it", true, 1)
		k.exist = 1
		time.Sleep(forwardRound)
		wants("in the same round", true, 1)
		time.Sleep(time.Nanosecond)
		wants("in the next round", false, 2)
		k.exist = 0
		wants("in that round", false, 2)
		time.Sleep(forwardAnyway - forwardRound - 2)
		wants("later", true, 3)
		time.Sleep(time.Nanosecond)
		wants("after 5 s", false, 3)
		if !slices.Equal(k.asked[0], delayedKeys) {
			t.Errorf("it has looked for %v", k.asked[0])
		}
		several := newLook(k, Options{Queues: numbered(2)}, false)
		several.forwarded()
		if several.forwardsNothing(t.Context()) {
			t.Error("on several nodes nobody has looked")
		}
	})
}

// asynq forwards nothing then, as its script would.
func TestASparedForwardIsAnsweredAsEmpty(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, client := newVirtual(t)
		conn := New(client, Options{Queues: numbered(1)})
		sum, keys := sumNamed(t, forwardScript), []string{"asynq:{default}:scheduled", "asynq:{default}:pending"}
		m.SetError("OOM")
		if err := conn.EvalSha(t.Context(), sum, keys).Err(); err == nil || !conn.look.sent.IsZero() {
			t.Fatalf("a forward that fails counts: %v", err)
		}
		m.SetError("")
		conn.look.forwarded()
		if n, err := conn.EvalSha(t.Context(), sum, keys).Int64(); n != 0 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		sent := New(&answers{look: func() error { return nil }}, Options{Queues: numbered(1)})
		sent.EvalSha(t.Context(), sum, keys)
		if !sent.look.sent.Equal(time.Now()) {
			t.Error("a forward that Redis has run does not count")
		}
	})
}
