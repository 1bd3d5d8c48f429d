package main

import (
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// ofAsynq returns the values of all Redis keys but railtoken's, on the masters of a client.
func ofAsynq(t *testing.T, client redis.UniversalClient, masters ...*redis.Client) (values map[string]string, ours int) {
	t.Helper()
	values = map[string]string{}
	for _, master := range masters {
		for _, name := range master.Keys(t.Context(), "*").Val() {
			if strings.HasPrefix(name, "railtoken:") {
				ours++
				continue
			}
			values[name] = client.Dump(t.Context(), name).Val()
		}
	}
	return values, ours
}

func TestUninstallLeavesNothingButAsynqsKeys(t *testing.T) {
	s := newSystem(t)
	w := s.work().worker
	s.crowd("order:1", "second", "third").reported(2)
	if out := must(t, exitError, "uninstall", "--yes"); !strings.Contains(out, "stop them first") || !strings.Contains(out, "/") {
		t.Errorf("with a worker: %s", out)
	}
	if err := w.Shutdown(); err != nil {
		t.Fatal(err)
	}
	s.client.Set(t.Context(), "railtoken:lock:{order:9}", "owner of another program", limit)
	s.client.Set(t.Context(), "railtokens:other", "of a stranger", 0)
	before, _ := ofAsynq(t, s.client, s.client)
	if out := must(t, exitError, "uninstall", "--yes"); !strings.Contains(out, "1 locks are held") {
		t.Errorf("with a held lock: %s", out)
	}
	s.client.Del(t.Context(), "railtoken:lock:{order:9}")
	if out := must(t, exitError, "uninstall"); !strings.Contains(out, "--yes") || !strings.Contains(out, "waiters") {
		t.Errorf("without a terminal: %s", out)
	}
	must(t, exitOK, "uninstall", "--dry-run")
	if _, ours := ofAsynq(t, s.client, s.client); ours < 3 {
		t.Fatalf("%d Redis keys are left before the deletion", ours)
	}
	must(t, exitOK, "uninstall", "--yes")
	after, ours := ofAsynq(t, s.client, s.client)
	if ours != 0 || !maps.Equal(before, after) || len(after) < 4 {
		t.Errorf("%d of our Redis keys are left; asynq's were %d and are %d, equal: %t", ours, len(before), len(after), maps.Equal(before, after))
	}
	if out := must(t, exitOK, "uninstall"); !strings.Contains(out, "nothing") {
		t.Errorf("a second time: %s", out)
	}
}

// crowded stores Redis keys of all kinds for many business keys, and one of asynq.
func crowded(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	_, err := client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for range 30 {
			for _, name := range []string{"railtoken:lock:{K}:fence", "railtoken:waiters:{K}", "railtoken:sequence:{K}", "railtoken:fired:{K}:x"} {
				p.Set(t.Context(), strings.Replace(name, "K", string(rune('a'+p.Len()%26))+strings.Repeat("k", p.Len()), 1), "1", 0)
			}
		}
		p.Set(t.Context(), "railtoken:audit", "1", 0)
		p.Set(t.Context(), "asynq:queues", "1", 0)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestUninstallNamesKnownKindsOnly(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"railtoken:lock:{a:b}": heldLock, "railtoken:lock:{a:b}:fence": "fence counter", "railtoken:lock:{a}:notify": "mark of a lock",
		"railtoken:fence:{d}:a": "token of a data key", "railtoken:parked": "parked", "railtoken:waiters:{a}": "waiters", "railtoken:\x1b[31m": "other",
	} {
		if got := kindOf(name); got != want {
			t.Errorf("%q is of the kind %q, want %q", name, got, want)
		}
	}
}

func TestUninstallKnowsEveryDocumentedRedisKey(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `(railtoken:[^`]+)` \\|").FindAllStringSubmatch(string(page), -1)
	for _, row := range rows {
		if kindOf(row[1]) == "other" {
			t.Errorf("uninstall does not know what %s is", row[1])
		}
	}
	if len(rows) < 15 {
		t.Errorf("%d rows found in the table", len(rows))
	}
}

func TestUninstallReachesEveryMasterOfACluster(t *testing.T) {
	cluster := redistest.StartCluster(t, 3)
	t.Setenv("RAILTOKEN_REDIS_CLUSTER", strings.Join(cluster.Addrs(), ","))
	client := cluster.Client(t)
	crowded(t, client)
	var masters []*redis.Client
	for _, node := range cluster.Nodes() {
		masters = append(masters, node.Client(t))
	}
	if out := must(t, exitOK, "uninstall", "--yes"); !strings.Contains(out, "121 Redis keys are deleted") {
		t.Errorf("it prints %s", out)
	}
	if left, ours := ofAsynq(t, client, masters...); ours != 0 || len(left) != 1 {
		t.Errorf("%d of our Redis keys are left, and %d others", ours, len(left))
	}
}

func TestUninstallFindsTheMasterOfSentinels(t *testing.T) {
	sentinel := redistest.StartSentinel(t)
	t.Setenv("RAILTOKEN_REDIS_MASTER", sentinel.MasterName())
	t.Setenv("RAILTOKEN_REDIS_SENTINELS", strings.Join(sentinel.Addrs(), ","))
	client := sentinel.Master().Client(t)
	crowded(t, client)
	must(t, exitOK, "uninstall", "--yes")
	if left, ours := ofAsynq(t, client, client); ours != 0 || len(left) != 1 {
		t.Errorf("%d of our Redis keys are left, and %d others", ours, len(left))
	}
}

func TestUninstallSweepsTheServersOfTheLocks(t *testing.T) {
	s := newSystem(t)
	var addrs []string
	var clients []*redis.Client
	for range 3 {
		server := redistest.Start(t)
		addrs = append(addrs, server.Addr())
		clients = append(clients, server.Client(t))
		clients[len(clients)-1].Set(t.Context(), "railtoken:lock:{a}:fence", "1", 0)
	}
	t.Setenv("RAILTOKEN_LOCK_NODES", strings.Join(addrs, ","))
	crowded(t, s.client)
	if out := must(t, exitOK, "uninstall", "--yes", "--json"); !strings.Contains(out, `"deleted": 124`) {
		t.Errorf("it prints %s", out)
	}
	if _, ours := ofAsynq(t, s.client, append(clients, s.client)...); ours != 0 {
		t.Errorf("%d of our Redis keys are left", ours)
	}
}
