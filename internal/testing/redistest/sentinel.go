package redistest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/process"
	"github.com/railtoken/railtoken/internal/testing/testserver"
)

const (
	sentinels = 3
	// masterName is what the sentinels call the master.
	masterName = "railtoken"
	// failoverPause bounds how long an orderly failover keeps writers waiting. It is longer than a failover may take: a
	// master that accepted writes again before the promotion would lose them.
	failoverPause = 2 * readyTimeout
)

// A Sentinel is a master with one replica, and three sentinels that watch over them and agree by two. It belongs to one test.
type Sentinel struct {
	nodes    [2]*Server // one of them is the master
	watchers []*Server
	master   int
}

// StartSentinel runs a master, its replica and the sentinels, and returns when each sentinel knows all of them and the replica follows.
// That takes one or two seconds. All are stopped at the end of the test; where no redis-server is installed, the test ends as
// with [Start]. Its methods must be called from the goroutine of the test.
func StartSentinel(tb testing.TB) *Sentinel {
	tb.Helper()
	testserver.LeaveToLong(tb)
	s := &Sentinel{}
	for i := range s.nodes {
		// A master would let a replica wait for 5 s, because another one might come.
		s.nodes[i] = Start(tb, "--repl-diskless-sync-delay", "0")
	}
	ctx, cancel := context.WithTimeout(tb.Context(), readyTimeout)
	defer cancel()
	if err := s.Replica().follow(ctx, s.Master()); err != nil {
		tb.Fatalf("redistest: replica %s: %v", s.Replica().Addr(), err)
	}
	if err := process.Poll(ctx, nil, func() error { return s.Replica().follows(ctx, s.Master()) }); err != nil {
		tb.Fatalf("redistest: replica %s does not follow its master: %v", s.Replica().Addr(), err)
	}
	for range sentinels {
		s.watchers = append(s.watchers, startWatcher(tb, s.Master()))
	}
	s.await(ctx, tb)
	return s
}

// MasterName returns the name by which the sentinels know the master.
func (s *Sentinel) MasterName() string { return masterName }

// Addrs returns the address of each sentinel.
func (s *Sentinel) Addrs() []string {
	addrs := make([]string, len(s.watchers))
	for i, w := range s.watchers {
		addrs[i] = w.Addr()
	}
	return addrs
}

// Master returns the server that is the master now.
func (s *Sentinel) Master() *Server { return s.nodes[s.master] }

// Replica returns the server that is the replica now.
func (s *Sentinel) Replica() *Server { return s.nodes[1-s.master] }

// Client returns a new client that follows the master by the sentinels, closed at the end of the test. Each mod may change its
// options first.
func (s *Sentinel) Client(tb testing.TB, mod ...func(*redis.FailoverOptions)) *redis.Client {
	tb.Helper()
	opt := &redis.FailoverOptions{MasterName: masterName, SentinelAddrs: s.Addrs()}
	for _, m := range mod {
		m(opt)
	}
	return closing(tb, redis.NewFailoverClient(opt))
}

// Failover lets the sentinels make the replica the master, as an operator would for maintenance, and returns when all of them say so
// and the old master follows the new one. No write that was answered is lost: writers wait while the replica catches up, and
// are sent to the new master then. Data of the old master that is not in its replica, such as its cached scripts, is gone.
func (s *Sentinel) Failover(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), readyTimeout)
	defer cancel()
	if err := s.failover(ctx); err != nil {
		tb.Fatalf("redistest: failover from %s to %s: %v", s.Master().Addr(), s.Replica().Addr(), err)
	}
	s.master = 1 - s.master
	s.await(ctx, tb)
}

func (s *Sentinel) failover(ctx context.Context) error {
	master, replica := s.Master().impatient(), s.Replica().impatient()
	defer master.Close()
	defer replica.Close()
	watcher := s.watchers[0].impatient()
	defer watcher.Close()

	// SENTINEL FAILOVER alone loses what the master still accepts after the promotion.
	if err := master.Do(ctx, "CLIENT", "PAUSE", failoverPause.Milliseconds(), "WRITE").Err(); err != nil {
		return err
	}
	if err := process.Poll(ctx, nil, func() error { return caughtUp(ctx, master, replica) }); err != nil {
		return err
	}
	err := process.Poll(ctx, nil, func() error { // it may not have looked at the replica lately
		return watcher.Do(ctx, "SENTINEL", "FAILOVER", masterName).Err()
	})
	if err != nil {
		return err
	}
	if err := process.Poll(ctx, nil, func() error { return isMaster(ctx, replica) }); err != nil {
		return err
	}
	// The sentinels would do this too, after 8 s. Writers that wait are told now that they are in the wrong place.
	if err := s.Master().follow(ctx, s.Replica()); err != nil {
		return err
	}
	return master.Do(ctx, "CLIENT", "UNPAUSE").Err()
}

// await is agreed, or the end of the test.
func (s *Sentinel) await(ctx context.Context, tb testing.TB) {
	tb.Helper()
	if err := s.agreed(ctx); err != nil {
		tb.Fatal(err)
	}
}

// agreed returns when every sentinel knows the master, the replica and the other sentinels, and the replica follows.
func (s *Sentinel) agreed(ctx context.Context) error {
	for _, w := range s.watchers {
		if err := process.Poll(ctx, nil, func() error { return s.agrees(ctx, w) }); err != nil {
			return fmt.Errorf("redistest: sentinel %s does not see the others: %w", w.Addr(), err)
		}
	}
	if err := process.Poll(ctx, nil, func() error { return s.Replica().follows(ctx, s.Master()) }); err != nil {
		return fmt.Errorf("redistest: replica %s does not follow its master: %w", s.Replica().Addr(), err)
	}
	return nil
}

// agrees succeeds when this sentinel sees what there is.
func (s *Sentinel) agrees(ctx context.Context, w *Server) error {
	client := redis.NewSentinelClient(w.options())
	defer client.Close()
	master, err := client.Master(ctx, masterName).Result()
	if err != nil {
		return err
	}
	for name, want := range map[string]string{
		"port": strconv.Itoa(s.Master().port), "flags": "master", "num-slaves": "1", "num-other-sentinels": strconv.Itoa(sentinels - 1),
	} {
		if master[name] != want {
			return fmt.Errorf("%s is %q, want %q", name, master[name], want)
		}
	}
	replicas, err := client.Replicas(ctx, masterName).Result()
	if err != nil {
		return err
	}
	follows := func(r map[string]string) bool {
		return r["port"] == strconv.Itoa(s.Replica().port) && r["flags"] == "slave" && r["master-link-status"] == "ok" &&
			r["master-port"] == strconv.Itoa(s.Master().port)
	}
	if !slices.ContainsFunc(replicas, follows) {
		return fmt.Errorf("it sees the replicas %v", replicas)
	}
	return nil
}

// startWatcher runs a sentinel for a master. It needs a file for its configuration, which it writes itself.
func startWatcher(tb testing.TB, master *Server) *Server {
	tb.Helper()
	w := &Server{bin: binary(tb), dir: tb.TempDir()}
	tb.Cleanup(func() {
		w.Stop()
		if tb.Failed() {
			tb.Logf("end of the log of the sentinel %s:\n%s", w.Addr(), process.LogTail(w.log(), 0))
		}
	})
	w.port = freePort(tb)
	if err := w.watch(tb.Context(), master); err != nil {
		tb.Fatal(err)
	}
	return w
}

// watch runs the server as a sentinel and returns when it answers. After an error no process is left.
func (s *Server) watch(ctx context.Context, master *Server) error {
	const conf = "sentinel.conf"
	text := fmt.Sprintf("bind %s\nport %d\nsentinel monitor %s %s %d %d\nsentinel down-after-milliseconds %[3]s 5000\n",
		loopback, s.port, masterName, loopback, master.port, sentinels/2+1)
	if err := os.WriteFile(filepath.Join(s.dir, conf), []byte(text), 0o600); err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	logStart := process.LogSize(s.log())
	proc, err := process.Start(process.Command{
		Path: s.bin, Args: []string{conf, "--sentinel"}, Dir: s.dir, Log: s.log(),
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := process.Poll(ctx, proc.Exited(), func() error { return s.probe(ctx, proc.PID()) }); err != nil {
		proc.Kill()
		return fmt.Errorf("redistest: sentinel %s did not start: %w; its log ends:\n%s", s.Addr(), err,
			process.LogTail(s.log(), logStart))
	}
	s.mu.Lock()
	s.proc = proc
	s.mu.Unlock()

	// It looks around each 2 to 10 s. Redis 7 can be told to hurry; an older one just takes longer.
	client := s.impatient()
	defer client.Close()
	for _, period := range []string{"INFO-PERIOD", "PUBLISH-PERIOD"} {
		_ = client.Do(ctx, "SENTINEL", "DEBUG", period, 100).Err()
	}
	return nil
}

// follow makes the server a replica of another.
func (s *Server) follow(ctx context.Context, master *Server) error {
	client := s.impatient()
	defer client.Close()
	return client.Do(ctx, "REPLICAOF", loopback, master.port).Err()
}

// follows succeeds when the server is a replica of another and has its data.
func (s *Server) follows(ctx context.Context, master *Server) error {
	client := s.impatient()
	defer client.Close()
	got, err := replication(ctx, client)
	if err != nil {
		return err
	}
	for name, want := range map[string]string{
		"role": "slave", "master_port": strconv.Itoa(master.port), "master_link_status": "up",
	} {
		if got[name] != want {
			return fmt.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	return nil
}

// caughtUp succeeds when a replica has all that its master has written.
func caughtUp(ctx context.Context, master, replica *redis.Client) error {
	wrote, err := replication(ctx, master)
	if err != nil {
		return err
	}
	has, err := replication(ctx, replica)
	if err != nil {
		return err
	}
	if wrote["master_repl_offset"] != has["slave_repl_offset"] {
		return fmt.Errorf("the replica is at %s, its master at %s", has["slave_repl_offset"], wrote["master_repl_offset"])
	}
	return nil
}

// isMaster succeeds when the server of a client is a master.
func isMaster(ctx context.Context, client *redis.Client) error {
	got, err := replication(ctx, client)
	if err == nil && got["role"] != "master" {
		err = fmt.Errorf("the role is %q", got["role"])
	}
	return err
}

func replication(ctx context.Context, client *redis.Client) (map[string]string, error) {
	info, err := client.InfoMap(ctx, "replication").Result()
	return info["Replication"], err
}
