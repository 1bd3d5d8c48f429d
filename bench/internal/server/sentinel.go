package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/process"
)

// MasterName is what the sentinels call their master.
const MasterName = "bench"

const (
	sentinels = 3
	// DownAfter is how long a master must be silent until a sentinel thinks that it is down.
	DownAfter = time.Second
	// tryAgain is the failover-timeout: sentinels that have split their votes try again within twice that time, which is 6 minutes by
	// default.
	tryAgain = 2 * time.Second
	// settleTime bounds how long servers that have just started need to find each other.
	settleTime = 30 * time.Second
)

// Sentinel is a master with one replica, and three sentinels that make the replica the master when two of them think that
// the master is down.
type Sentinel struct {
	Master, Replica *Server
	watchers        []*Server
}

// StartSentinel runs the servers, and returns when the sentinels know all of them.
func StartSentinel(ctx context.Context, dir string) (s *Sentinel, err error) {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	s = &Sentinel{}
	defer func() {
		if err != nil {
			s.Kill()
		}
	}()
	// A master would let a replica wait for 5 s, because another one might come.
	if s.Master, err = Start(ctx, dir, "--repl-diskless-sync-delay", "0"); err != nil {
		return nil, err
	}
	_, port, _ := strings.Cut(s.Master.Addr(), ":")
	if s.Replica, err = Start(ctx, dir, "--replicaof", process.Loopback+" "+port); err != nil {
		return nil, err
	}
	for range sentinels {
		watcher, err := startWatcher(ctx, dir, port)
		if err != nil {
			return nil, err
		}
		s.watchers = append(s.watchers, watcher)
	}
	for _, watcher := range s.watchers {
		if err := process.Poll(ctx, watcher.Exited(), func() error { return sees(ctx, watcher) }); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// startWatcher runs a sentinel. It writes its configuration itself, so it has a file.
func startWatcher(ctx context.Context, dir, master string) (*Server, error) {
	number, err := process.FreePort(ctx)
	if err != nil {
		return nil, err
	}
	port := strconv.Itoa(number)
	conf := filepath.Join(dir, "sentinel-"+port+".conf")
	text := fmt.Sprintf("bind %s\nport %s\ndir %s\nsentinel monitor %s %s %s %d\nsentinel down-after-milliseconds %s %d\n"+
		"sentinel failover-timeout %s %d\n",
		process.Loopback, port, dir, MasterName, process.Loopback, master, sentinels/2+1, MasterName, DownAfter.Milliseconds(),
		MasterName, tryAgain.Milliseconds())
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return nil, err
	}
	s := newServer(dir, port, conf, "--sentinel")
	if err := s.launch(ctx); err != nil {
		return nil, err
	}
	// It looks around each 2 to 10 s. Redis 7 can be told to hurry; an older one just takes longer.
	for _, period := range []string{"INFO-PERIOD", "PUBLISH-PERIOD"} {
		_ = s.probe.Do(ctx, "SENTINEL", "DEBUG", period, 100).Err()
	}
	return s, nil
}

// sees returns nil when a sentinel sees the master, a replica that follows, and the other sentinels.
func sees(ctx context.Context, watcher *Server) error {
	client := redis.NewSentinelClient(&redis.Options{Addr: watcher.Addr(), MaxRetries: -1})
	defer client.Close()
	master, err := client.Master(ctx, MasterName).Result()
	if err != nil {
		return err
	}
	replicas, err := client.Replicas(ctx, MasterName).Result()
	if err != nil {
		return err
	}
	if master["num-other-sentinels"] != strconv.Itoa(sentinels-1) || len(replicas) != 1 || replicas[0]["master-link-status"] != "ok" {
		return fmt.Errorf("a sentinel sees %s others, and the replicas %v", master["num-other-sentinels"], replicas)
	}
	return nil
}

// Addrs returns the sentinels' addresses.
func (s *Sentinel) Addrs() []string { return Addrs(s.watchers) }

// FailOver kills the master, and returns when the sentinels have made the replica the master.
func (s *Sentinel) FailOver(ctx context.Context) error {
	s.Master.Kill()
	return process.Poll(ctx, s.Replica.Exited(), func() error {
		info, err := s.Replica.Probe().InfoMap(ctx, "replication").Result()
		if err == nil && info["Replication"]["role"] != "master" {
			err = errors.New("the replica is not the master yet")
		}
		return err
	})
}

// Kill ends all servers at once, and returns when they are gone.
func (s *Sentinel) Kill() {
	for _, one := range append([]*Server{s.Master, s.Replica}, s.watchers...) {
		if one != nil {
			one.Kill()
		}
	}
}
