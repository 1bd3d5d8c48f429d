package restartguard_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/restartguard"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

const (
	plainLock   = "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0"
	guardedLock = "local other = other_server(ARGV[3])\nif other then return other end\n" + plainLock
)

// take runs the guarded lock script, as a lock client would.
func take(t testing.TB, c *redis.Client, identity string) (reply any, f restartguard.Facts, other bool) {
	t.Helper()
	sent := time.Now()
	reply, err := redis.NewScript(restartguard.Script(guardedLock)).Run(t.Context(), c, []string{"key"}, "me", 1000,
		identity).Result()
	if err != nil {
		t.Fatal(err)
	}
	f, other, err = restartguard.ParseReply(reply, sent, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return reply, f, other
}

func strict(t testing.TB, ttl time.Duration) *restartguard.Node {
	return newGuard(t, 1, restartguard.Options{Mode: restartguard.Strict, MaxTTL: ttl, MaxSkew: time.Minute}).Node(0)
}

func TestAStrictScriptRunsInTheVettedServer(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	n := strict(t, anyAge)
	c := protected(t, s, n, nil)
	accepted(t, n, c)
	if reply, _, other := take(t, c, n.Identity()); other || reply != int64(1) {
		t.Errorf("reply %v, another server %t; want 1 of the same", reply, other)
	}
}

// A proxy hides that another server answers, as a client does here that is not guarded.
func TestStrictScriptRefusesAnother(t *testing.T) {
	t.Parallel()
	two := redistest.Start(t) // first, so that it is old enough when the other one is
	one := redistest.Start(t)
	n := strict(t, maxTTL)
	accepted(t, n, protected(t, one, n, nil))
	proxied := two.Client(t)
	_, f, other := take(t, proxied, n.Identity())
	if !other || f.Identity() == n.Identity() || f.RoundTrip <= 0 {
		t.Fatalf("facts %+v, another server %t; want those of another", f, other)
	}
	if exists := proxied.Exists(t.Context(), "key").Val(); exists != 0 {
		t.Error("the other server took the lock")
	}
	refusal := refusedFor(t, n.Reject(f), restartguard.Replaced)
	if !errors.Is(n.Blocked(), refusal) || n.Identity() != "" {
		t.Errorf("blocked %v, identity %q; want the refusal and none", n.Blocked(), n.Identity())
	}
	// While the node is refused, no server is the one expected.
	if _, _, other = take(t, proxied, n.Identity()); !other {
		t.Error("the lock is taken without an identity")
	}
}

func TestStrictScriptRefusesAReplica(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	n := strict(t, anyAge)
	c := protected(t, s, n, nil)
	accepted(t, n, c)
	id := n.Identity()
	do(t, s.Client(t), "CONFIG", "SET", "replica-read-only", "no")
	do(t, s.Client(t), "REPLICAOF", "127.0.0.1", "1")
	_, f, other := take(t, c, id)
	if !other {
		t.Fatal("the lock is taken on a replica")
	}
	refusedFor(t, n.Reject(f), restartguard.NotMaster)
}

// Redis changes the replication id by itself when replicas have been gone for long: nothing was lost, so the server
// keeps its vote.
func TestRejectAcceptsANewReplicationID(t *testing.T) {
	t.Parallel()
	now, n := time.Now(), strict(t, ttl)
	if err := n.Reject(facts(now, time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := n.Reject(facts(now, time.Hour, func(f *restartguard.Facts) { f.ReplID = idC })); err != nil {
		t.Fatal(err)
	}
	if want := idA + " " + idC; n.Identity() != want {
		t.Errorf("identity %q, want %q", n.Identity(), want)
	}
}

func TestParseReply(t *testing.T) {
	t.Parallel()
	now := time.Now()
	whole := []any{"other server", serverInfo, replicationInfo, memoryInfo, "1700000000", "250000"}
	f, other, err := restartguard.ParseReply(whole, now, now.Add(2*time.Second))
	if err != nil || !other || f.RunID != idA || !f.Clock.Equal(time.Unix(1700000000, 250e6)) ||
		!f.Asked.Equal(now.Add(time.Second)) {
		t.Errorf("facts %+v, another server %t, error %v", f, other, err)
	}
	for micros, want := range map[string]time.Duration{"0": 0, "999999": 999_999 * time.Microsecond} {
		f, _, err := restartguard.ParseReply(append(whole[:5:5], micros), now, now)
		if err != nil || !f.Clock.Equal(time.Unix(1700000000, int64(want))) {
			t.Errorf("%s microseconds: clock %v, error %v", micros, f.Clock, err)
		}
	}
	for _, reply := range []any{nil, int64(1), "OK", []any{}, []any{int64(1), "other server"}} {
		if _, other, err := restartguard.ParseReply(reply, now, now); other || err != nil {
			t.Errorf("reply %v: another server %t, error %v; want the script's own", reply, other, err)
		}
	}
	with := func(i int, v any) []any {
		reply := append([]any{}, whole...)
		reply[i] = v
		return reply
	}
	for name, reply := range map[string][]any{
		"too short": whole[:5], "too long": append(with(0, "other server"), int64(1)), "not text": with(3, int64(3)),
		"seconds": with(4, "soon"), "microseconds": with(5, "1000000"), "before 0": with(5, "-1"), "no micros": with(5, "x"),
		"INFO": with(1, strings.Replace(serverInfo, ":123", ":x", 1)),
	} {
		if f, other, err := restartguard.ParseReply(reply, now, now); err == nil || !other || f != (restartguard.Facts{}) {
			t.Errorf("%s: facts %+v, another server %t, error %v; want an error", name, f, other, err)
		}
	}
}
