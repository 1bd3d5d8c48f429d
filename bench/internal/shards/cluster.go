package shards

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/bench/internal/server"
)

const (
	loopback   = "127.0.0.1"
	slots      = 16384
	busOffset  = 10000 // what redis-server adds to its port for the connections between nodes
	readyBound = 30 * time.Second
	starts     = 20 // tries to start a node: another process may have taken a port
)

// cluster is a Redis Cluster of masters without replicas.
type cluster struct {
	nodes []*node
}

// node is a redis-server in cluster mode.
type node struct {
	port   int
	cmd    *exec.Cmd
	exited chan struct{}
	probe  *redis.Client
}

func (n *node) addr() string { return net.JoinHostPort(loopback, strconv.Itoa(n.port)) }

// startCluster runs k masters that share the hash slots evenly, and returns when each of them sees the whole cluster in order.
func startCluster(ctx context.Context, dir string, k int) (c *cluster, err error) {
	ctx, cancel := context.WithTimeout(ctx, readyBound)
	defer cancel()
	c = &cluster{}
	defer func() {
		if err != nil {
			c.kill()
		}
	}()
	for range k {
		n, err := startNode(ctx, dir)
		if err != nil {
			return c, err
		}
		c.nodes = append(c.nodes, n)
	}
	for i, n := range c.nodes {
		if err := n.probe.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
			return c, err
		}
		if err := n.probe.ClusterAddSlotsRange(ctx, i*slots/k, (i+1)*slots/k-1).Err(); err != nil {
			return c, err
		}
		if i > 0 {
			if err := n.probe.ClusterMeet(ctx, loopback, strconv.Itoa(c.nodes[0].port)).Err(); err != nil {
				return c, err
			}
		}
	}
	for _, n := range c.nodes {
		if err := poll(ctx, func() error { return n.sees(ctx, k) }); err != nil {
			return c, fmt.Errorf("node %s does not see the whole cluster: %w", n.addr(), err)
		}
	}
	return c, nil
}

func (c *cluster) addrs() []string {
	addrs := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		addrs[i] = n.addr()
	}
	return addrs
}

func (c *cluster) probes() []*redis.Client {
	probes := make([]*redis.Client, len(c.nodes))
	for i, n := range c.nodes {
		probes[i] = n.probe
	}
	return probes
}

// kill ends all nodes and returns when they are gone.
func (c *cluster) kill() {
	for _, n := range c.nodes {
		n.kill()
	}
}

func (n *node) kill() {
	_ = n.cmd.Process.Kill()
	<-n.exited
	_ = n.probe.Close()
}

func startNode(ctx context.Context, dir string) (*node, error) {
	for try := 0; ; try++ {
		n, err := tryNode(ctx, dir)
		if err == nil || ctx.Err() != nil || try == starts {
			return n, err
		}
	}
}

func tryNode(ctx context.Context, dir string) (*node, error) {
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	dir = filepath.Join(dir, "node-"+strconv.Itoa(port))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	n := &node{port: port, exited: make(chan struct{})}
	n.cmd = exec.Command("redis-server", //nolint:noctx // it ends by kill
		"--bind", loopback, "--port", strconv.Itoa(port), "--dir", dir, "--save", "", "--appendonly", "no", "--logfile", "log",
		"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf")
	n.cmd.SysProcAttr = server.DieWithParent()
	started := make(chan error)
	go func() {
		// The death signal comes when the thread that forked ends: keep that thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(n.exited)
		err := n.cmd.Start()
		started <- err
		if err == nil {
			_ = n.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	n.probe = redis.NewClient(&redis.Options{Addr: n.addr(), PoolSize: 1, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true})
	if err := poll(ctx, func() error { return n.answers(ctx) }); err != nil {
		n.kill()
		return nil, err
	}
	return n, nil
}

// errGone reports that a process has ended, which is not worth waiting for.
var errGone = errors.New("redis-server has ended")

// answers succeeds when this very process answers: another one may have taken the port.
func (n *node) answers(ctx context.Context) error {
	select {
	case <-n.exited:
		return errGone
	default:
	}
	// The client is not asked before the server listens: it would rest for a second after a dial that was refused.
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", n.addr())
	if err != nil {
		return err
	}
	if err := conn.Close(); err != nil {
		return err
	}
	info, err := n.probe.InfoMap(ctx, "server").Result()
	if err == nil && info["Server"]["process_id"] != strconv.Itoa(n.cmd.Process.Pid) {
		return errGone
	}
	return err
}

// sees succeeds when the node sees k masters that serve all slots.
func (n *node) sees(ctx context.Context, k int) error {
	info, err := n.probe.ClusterInfo(ctx).Result()
	if err != nil {
		return err
	}
	for _, want := range []string{
		"cluster_state:ok", fmt.Sprint("cluster_known_nodes:", k), fmt.Sprint("cluster_size:", k), fmt.Sprint("cluster_slots_ok:", slots),
	} {
		if !strings.Contains(info, want+"\r\n") {
			return fmt.Errorf("no %s", want)
		}
	}
	return nil
}

// poll tries until it succeeds, is in vain, or ctx ends.
func poll(ctx context.Context, try func() error) error {
	for {
		err := try()
		if err == nil || errors.Is(err, errGone) {
			return err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
	}
}

// freePort returns a port that is free, and whose bus port is a port too.
func freePort(ctx context.Context) (int, error) {
	for range starts {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(loopback, "0"))
		if err != nil {
			return 0, err
		}
		addr, ok := l.Addr().(*net.TCPAddr)
		if err := l.Close(); err != nil {
			return 0, err
		}
		if ok && addr.Port+busOffset <= 65535 {
			return addr.Port, nil
		}
		if !ok {
			return 0, fmt.Errorf("%s is not a TCP address", l.Addr())
		}
	}
	return lowPort(ctx)
}

// lowPort looks for a free port below those that the system gives out, which may all be too high.
func lowPort(ctx context.Context) (int, error) {
	for port := 20000 + os.Getpid()%10000; port < 32000; port++ {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no port is free")
}
