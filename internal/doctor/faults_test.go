package doctor_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/asynqtest"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

var encrypted = &tls.Config{MinVersion: tls.VersionTLS12}

// durable makes a lock server keep every write.
var durable = []string{"--appendonly", "yes", "--appendfsync", "always"}

func TestAHealthySystemHasNoFindings(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.nodes(5, durable...)
	s.src.Settings.GuardOff = true
	s.worker()
	s.hold("order:1")
	s.parked("any", "order:1")
	s.hold("order:2")
	s.parked("fifo", "order:2")
	s.parked("fifo", "order:2")
	running := s.enqueue("any", "order:3", asynq.Timeout(time.Minute))
	s.await(running, middleware.Acquired)
	before := s.contents()
	report := s.examine()
	if len(report.Findings)+len(report.Unchecked) > 0 {
		t.Errorf("findings on a healthy system: %+v", report)
	}
	if after := s.contents(); after != before {
		t.Errorf("the doctor has changed\n%s\nto\n%s", before, after)
	}
}

// contents returns the names of what is about locks and waiting, which nothing but the doctor could change meanwhile.
func (s *system) contents() string {
	names := s.client.Keys(s.Context(), "railtoken:*{*").Val()
	var all []string
	for _, name := range names {
		all = append(all, fmt.Sprintf("%s %v", name, s.client.Dump(s.Context(), name).Val()))
	}
	return strings.Join(sorted(all), "\n")
}

// fault is one that is seeded, and what the doctor must say of it.
type fault struct {
	check string
	seed  func(*testing.T) *system
	says  []string // in the finding, its remedy or its command
	also  []string // checks that have findings, too
}

var faults = map[string]fault{
	"eviction": {"eviction", func(t *testing.T) *system {
		return newSystem(t, "--appendonly", "yes", "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	}, []string{"allkeys-lru", "CONFIG SET maxmemory-policy noeviction"}, nil},
	"eviction on a lock server": {"eviction", func(t *testing.T) *system {
		s := newSystem(t)
		s.src.Settings.GuardOff, s.src.Settings.AllowEviction = true, true
		s.nodes(3, append(durable, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")...)
		return s
	}, []string{"second holder"}, nil},
	"nothing on disk": {"persistence", func(t *testing.T) *system {
		return newSystem(t, "--loglevel", "warning")
	}, []string{"keeps nothing on disk", "CONFIG SET appendonly yes"}, nil},
	"lock servers that forget": {"persistence", func(t *testing.T) *system {
		s := newSystem(t)
		s.src.Settings.GuardOff = true
		s.nodes(3, "--appendonly", "yes")
		return s
	}, []string{"votes at once after a restart", "RAILTOKEN_LOCK_GUARD=connect"}, nil},
	"a disk that fails": {"persistence", func(t *testing.T) *system {
		s := newSystem(t)
		dir := s.client.ConfigGet(t.Context(), "dir").Val()["dir"]
		// A snapshot cannot replace a folder.
		if err := os.MkdirAll(dir+"/dump.rdb/x", 0o700); err != nil {
			t.Fatal(err)
		}
		_ = s.client.Save(t.Context())
		_ = s.client.BgSave(t.Context())
		s.until(func() bool {
			return strings.Contains(s.client.Info(t.Context(), "persistence").Val(), "rdb_last_bgsave_status:err")
		})
		return s
	}, []string{"cannot write its data", "disk"}, nil},
	"an old version": {"version", func(t *testing.T) *system {
		s := newSystem(t)
		s.client.AddHook(rewriting{func(cmd redis.Cmder) {
			if c, ok := cmd.(*redis.StringCmd); ok && cmd.Name() == "info" {
				c.SetVal(strings.Replace(c.Val(), "redis_version:", "redis_version:6.0.16\r\nwas:", 1))
			}
		}})
		return s
	}, []string{"6.0.16", "use 6.2 or later"}, nil},
	"another server": {"version", func(t *testing.T) *system {
		s := newSystem(t)
		s.client.AddHook(rewriting{func(cmd redis.Cmder) {
			if c, ok := cmd.(*redis.StringCmd); ok && cmd.Name() == "info" {
				c.SetVal(strings.Replace(c.Val(), "redis_version:", "dragonfly_version:df-v1.40.1\r\nredis_version:", 1))
			}
		}})
		return s
	}, []string{"Dragonfly df-v1.40.1", "not tested"}, nil},
	"two masters": {"role", func(t *testing.T) *system {
		s := newSystem(t)
		s.client.AddHook(rewriting{func(cmd redis.Cmder) {
			if c, ok := cmd.(*redis.StringCmd); ok && cmd.Name() == "info" {
				c.SetVal(strings.Replace(c.Val(), "role:master", "role:active-replica", 1))
			}
		}})
		return s
	}, []string{"two masters", "active-replica off"}, nil},
	"a command that it lacks": {"commands", func(t *testing.T) *system {
		return newSystem(t, "--appendonly", "yes", "--rename-command", "LPOS", "")
	}, []string{"lacks the command LPOS", "use Redis or Valkey itself"}, nil},
	"a replica": {"role", func(t *testing.T) *system {
		s := newSystem(t)
		master := redistest.Start(t)
		_, port, _ := net.SplitHostPort(master.Addr())
		if err := s.client.ReplicaOf(t.Context(), "127.0.0.1", port).Err(); err != nil {
			t.Fatal(err)
		}
		s.until(func() bool {
			return strings.Contains(s.client.Info(t.Context(), "replication").Val(), "master_link_status:up")
		})
		return s
	}, []string{"is a replica", "its master"}, nil},
	"missing rules": {"acl", func(t *testing.T) *system {
		s := newSystem(t)
		s.src.Tasks = s.server.Client(t, s.server.User(t, "shop", "~asynq:*", "~railtoken:*", "&*", "+@all", "-zadd"))
		return s
	}, []string{"ACL SETUSER shop +zadd"}, nil},
	"no channels": {"acl", func(t *testing.T) *system {
		s := newSystem(t)
		s.src.Tasks = s.server.Client(t, s.server.User(t, "shop", "~asynq:*", "~railtoken:*", "+@all"))
		return s
	}, []string{"ACL SETUSER shop &asynq:* &railtoken:*"}, nil},
	"no encryption": {"tls", func(t *testing.T) *system {
		s := newSystem(t)
		s.src.Tasks = s.server.Client(t, at("10.1.2.3:6379", s.server.Addr()),
			func(o *redis.Options) { o.TLSConfig = nil })
		return s
	}, []string{"10.1.2.3:6379", "RAILTOKEN_REDIS_TLS=true"}, nil},
	"a clock that is behind": {"clock", func(t *testing.T) *system {
		s := newSystem(t)
		s.client.AddHook(rewriting{func(cmd redis.Cmder) {
			if c, ok := cmd.(*redis.TimeCmd); ok {
				c.SetVal(c.Val().Add(-3 * time.Second))
			}
		}})
		return s
	}, []string{"behind", "synchronize"}, nil},
	"a slow server": {"latency", func(t *testing.T) *system {
		s := newSystem(t)
		s.src.Tasks = s.server.Client(t, func(o *redis.Options) {
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := new(net.Dialer).DialContext(ctx, network, addr)
				return slow{c}, err
			}
		})
		return s
	}, []string{"ask it every 50ms", "nearer"}, nil},
	"one server twice": {"same-server", func(t *testing.T) *system {
		s := newSystem(t)
		s.src.Settings.GuardOff = true
		servers := s.nodes(2, durable...)
		s.node("c.example:6379", servers[0])
		return s
	}, []string{"same server as a.example:6379", "RAILTOKEN_LOCK_NODES"}, nil},
	"a quorum on one machine": {"one-host", func(t *testing.T) *system {
		s := newSystem(t)
		s.src.Settings.GuardOff = true
		s.nodes(3, durable...)
		s.src.Resolve = func(_ context.Context, host string) ([]string, error) {
			if host == "c.example" {
				return []string{"10.0.0.2"}, nil
			}
			return []string{"10.0.0.1"}, nil
		}
		return s
	}, []string{"2 of 3 lock servers", "10.0.0.1", "spread"}, nil},
	"a server that has just started": {"votes", func(t *testing.T) *system {
		s := newSystem(t)
		s.nodes(3)
		return s
	}, []string{"may not vote", "known to have run", "wait"}, nil},
	"a dead lock server": {"unreachable", func(t *testing.T) *system {
		s := newSystem(t)
		s.src.Settings.GuardOff = true
		s.nodes(3, durable...)[1].Kill()
		return s
	}, []string{"b.example:6379", "one lock server less", "start it"}, nil},
	"a dead server": {"unreachable", func(t *testing.T) *system {
		s := newSystem(t)
		s.src.Tasks = s.server.Client(t, func(o *redis.Options) { o.MaxRetries, o.DialerRetries = -1, 1 })
		s.server.Kill()
		return s
	}, []string{"no task runs until it is back"}, nil},
	"another asynq": {"asynq-scripts", func(t *testing.T) *system {
		s := newSystem(t)
		a, err := attach.New(s.client, asynq.Config{LogLevel: asynq.FatalLevel}, attach.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = a.Close() })
		other := asynqtest.OtherVersion{UniversalClient: a.Client(), Changed: func(string,
			[]string,
		) bool {
			return true
		}}
		server := asynq.NewServerFromRedisClient(other, a.Config())
		if err := server.Start(asynq.NewServeMux()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Shutdown)
		s.until(func() bool { return s.client.ZCard(t.Context(), "asynq:servers").Val() > 0 })
		return s
	}, []string{"does not know", "asynq@v0.26.0"}, nil},
	"a queue without a server": {"unserved", func(t *testing.T) *system {
		s := newSystem(t)
		s.worker()
		s.enqueue("any", "order:1", asynq.Queue("audits"))
		return s
	}, []string{"queue audits", "no server works on it", "1 for slots", "RAILTOKEN_QUEUES", "delete the queue and them", `"they do not run"`}, nil},
	"no worker": {"unserved", func(t *testing.T) *system {
		s := newSystem(t)
		s.enqueue("any", "order:1", asynq.Queue("audits"))
		s.enqueue("any", "order:1")
		return s
	}, []string{`"queues audits, default"`, "no worker is running", "0 of their tasks wait for keys, 2 for slots"}, nil},
	"a paused queue": {"unserved", func(t *testing.T) *system {
		s := newSystem(t)
		s.worker()
		s.hold("order:1")
		s.parked("any", "order:1")
		if err := asynq.NewInspectorFromRedisClient(s.client).PauseQueue("default"); err != nil {
			t.Fatal(err)
		}
		return s
	}, []string{"it is paused, and 1 of its tasks", "railtoken unpause default"}, nil},
	"a stuck task": {"stuck", func(t *testing.T) *system {
		s := newSystem(t)
		s.worker()
		task := s.enqueue("any", "order:1", asynq.Timeout(time.Minute))
		s.await(task, middleware.Acquired)
		if err := s.client.ZRem(t.Context(), "asynq:{default}:lease", task.ID).Err(); err != nil {
			t.Fatal(err)
		}
		return s
	}, []string{"without a lease", "ZADD asynq:{default}:lease 0"}, nil},
	"a worker that is silent": {"stuck", func(t *testing.T) *system {
		s := newSystem(t)
		s.worker()
		task := s.abandoned("order:1", 10*time.Second)
		s.holdAs("order:1", "host/1/any/"+task.ID)
		s.parked("any", "order:1")
		return s
	}, []string{"has not been heard of for 2", "railtoken depose order:1 --why REASON"}, nil},
	"a worker that has died": {"stuck", func(t *testing.T) *system {
		s := newSystem(t)
		s.worker()
		s.abandoned("order:1", -20*time.Second)
		return s
	}, []string{"has not renewed asynq's lease, which ended 2", "it has died, or stood still", "within two minutes", "counts as failed"}, nil},
	"a task that kills its workers": {"stuck", func(t *testing.T) *system {
		s := newSystem(t)
		s.worker()
		task := s.abandoned("order:1", 29*time.Second)
		for range 2 {
			s.takenBack(task)
			s.fetched(task, 29*time.Second)
		}
		return s
	}, []string{"2 of its last runs have ended because its worker died or stood still", "railtoken cancel audits/"}, nil},
	"entries without a task": {"orphans", func(t *testing.T) *system {
		s := newSystem(t)
		s.worker()
		s.hold("order:1")
		task := s.parked("any", "order:1")
		s.parked("any", "order:1")
		if err := s.client.Del(t.Context(), "asynq:{default}:t:"+task.ID).Err(); err != nil {
			t.Fatal(err)
		}
		return s
	}, []string{"railtoken wake order:1"}, nil},
	"mixed orders": {"mixed-orders", func(t *testing.T) *system {
		s := newSystem(t)
		s.worker()
		s.hold("order:1")
		s.parked("fifo", "order:1")
		s.parked("any", "order:1")
		return s
	}, []string{"key order:1", "same Order"}, nil},
	"an old wait": {"oldest-wait", func(t *testing.T) *system {
		s := newSystem(t)
		s.worker()
		s.hold("order:1")
		s.parked("any", "order:1")
		s.src.Settings.MaxWait = time.Nanosecond
		return s
	}, []string{"order:1", "railtoken explain default/"}, nil},
	"half of the time until a deadline": {"oldest-wait", func(t *testing.T) *system {
		s := newSystem(t)
		s.worker()
		s.hold("order:1")
		task := s.parked("any", "order:1", asynq.Deadline(time.Now().Add(time.Hour)))
		hash := "asynq:{default}:t:" + task.ID
		w := line.ParseWait(s.client.HGet(t.Context(), hash, line.WaitField).Val())
		w.First = time.Now().Add(-2 * time.Hour)
		if err := s.client.HSet(t.Context(), hash, line.WaitField, w.String()).Err(); err != nil {
			t.Fatal(err)
		}
		s.src.Settings.MaxWait = 24 * time.Hour
		return s
	}, []string{"half of the time until its deadline", "railtoken put-first"}, nil},
	"no timeout": {"timeout", func(t *testing.T) *system {
		s := newSystem(t)
		s.worker()
		s.hold("order:1")
		s.await(s.enqueue("any", "order:1"), middleware.Parked)
		return s
	}, []string{"type any", "30 min", "asynq.Timeout"}, nil},
	"a key that is held for MaxHold": {"max-hold", func(t *testing.T) *system {
		s := newSystem(t)
		s.worker()
		s.reported(s.enqueue("any", "order:1", asynq.Timeout(time.Minute)))
		s.src.Settings.MaxHold = time.Millisecond
		return s
	}, []string{"key order:1", "RAILTOKEN_MAX_HOLD"}, nil},
	"a lock that is not renewed": {"ttl", func(t *testing.T) *system {
		s := newSystem(t)
		s.worker()
		s.reported(s.enqueue("any", "order:1", asynq.Timeout(time.Minute)))
		s.src.Settings.TTL = 1000 * time.Second
		return s
	}, []string{"key order:1", "RAILTOKEN_LOCK_TTL"}, nil},
	"locks in two places": {"workers", func(t *testing.T) *system {
		s := newSystem(t)
		s.worker()
		s.worker(func(c *worker.Config) {
			c.Queues = map[string]int{"other": 1}
			c.LockRedis = worker.Redis{Addr: redistest.Start(t).Addr()}
		})
		s.until(func() bool { return s.client.ZCard(t.Context(), "railtoken:workers").Val() == 2 })
		return s
	}, []string{"their locks in different places", "LockRedis"}, nil},
	"workers that differ": {"workers", func(t *testing.T) *system {
		s := newSystem(t)
		s.worker()
		s.worker(func(c *worker.Config) { c.MaxHold = time.Hour })
		s.until(func() bool { return s.client.ZCard(t.Context(), "railtoken:workers").Val() == 2 })
		return s
	}, []string{"different configurations", "RAILTOKEN_"}, nil},
}

func TestEverySeededFaultIsFound(t *testing.T) {
	t.Parallel()
	maps.Copy(faults, answers)
	maps.Copy(faults, incidents)
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := fault.seed(t).examine()
			got := found(report, fault.check)
			if len(got) == 0 {
				t.Fatalf("no finding of %q: %+v", fault.check, report)
			}
			text, _ := json.Marshal(got)
			if name == "no worker" && len(got) != 1 {
				t.Errorf("%d findings, want one: %s", len(got), text)
			}
			contains(t, strings.ReplaceAll(string(text), "\\u0026", "&"), fault.says...)
			for _, f := range report.Findings {
				if f.Check != fault.check {
					t.Errorf("another finding: %+v", f)
				}
				if f.What == "" || f.Cost == "" || f.Remedy == "" || f.Where == "" {
					t.Errorf("finding without a part: %+v", f)
				}
			}
		})
	}
}

func durableCluster(t *testing.T) *redistest.Cluster {
	t.Helper()
	cluster := redistest.StartCluster(t, 3)
	for _, node := range cluster.Nodes() {
		if err := node.Client(t).ConfigSet(t.Context(), "appendonly", "yes").Err(); err != nil {
			t.Fatal(err)
		}
	}
	return cluster
}

func TestAHotSlotOfAClusterIsFound(t *testing.T) {
	t.Parallel()
	s := &system{T: t}
	client := durableCluster(t).Client(t)
	s.src.Tasks = client
	client.SAdd(t.Context(), "asynq:queues", "hot", "cold")
	ids := make([]any, 1500)
	for i := range ids {
		ids[i] = fmt.Sprint(i)
	}
	client.RPush(t.Context(), "asynq:{hot}:pending", ids...)
	client.RPush(t.Context(), "asynq:{cold}:pending", ids[:100]...)
	report := s.examine()
	if len(report.Unchecked) > 0 {
		t.Errorf("not checked on a Cluster: %+v", report.Unchecked)
	}
	got := found(report, "hot-slot")
	if len(got) != 1 {
		t.Fatalf("findings %+v, want the slot of one queue", got)
	}
	contains(t, got[0].What, "1500 of 1600", "queue hot")
}
