// Package etcdtest runs clusters of etcd for tests and benchmarks: each member a process of its own on free ports, which
// can be stopped, killed and restarted. It needs the program etcd in PATH, or in the environment variable ETCD.
package etcdtest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/railtoken/railtoken/internal/testing/process"
)

const (
	readyTimeout = 20 * time.Second
	memberSize   = 256 << 20 // an etcd sets aside two files of 64 MB for its log
)

// Reach returns the address by which the listener of an address is reached from elsewhere.
type Reach func(ctx context.Context, addr string) (string, error)

// Options describes a cluster. The zero value is one member with etcd's own defaults.
type Options struct {
	// Members is how many there are; one when zero.
	Members int
	// Election is the election timeout, and ten times the interval of heartbeats; 1 s when zero. The shortest lease that
	// etcd grants is 1.5 times as long, rounded up to a second.
	Election time.Duration
	// Reach is how the members reach each other; directly when nil.
	Reach Reach
	// Args are further arguments of etcd.
	Args []string
}

// Cluster is a cluster of etcd processes that this program has started.
type Cluster struct {
	members []*process.Process
	args    [][]string // of each member
	logs    []string   // their files
	addrs   []string
	dir     string
	ram     bool
}

// Start runs a cluster and returns when it has a leader. The logs of its members go to the directory dir. Their data
// go to memory if there is room, because the redis-servers of a benchmark write nothing to disk either, else to dir.
func Start(ctx context.Context, dir string, opts Options) (*Cluster, error) {
	opts.Members = max(opts.Members, 1)
	c := &Cluster{}
	if err := c.start(ctx, dir, opts); err != nil {
		return nil, fmt.Errorf("etcd does not start; its log is in %s: %w", dir, errors.Join(err, c.End()))
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, dir string, opts Options) error {
	n := opts.Members
	addrs, err := process.FreeAddrs(ctx, 2*n)
	if err != nil {
		return err
	}
	c.addrs = addrs[:n]
	root, ram := process.MemoryDir(uint64(n) * memberSize)
	if c.ram = ram; !ram {
		root = dir
	}
	if c.dir, err = os.MkdirTemp(root, "bench-etcd-"); err != nil {
		return err
	}
	reached, cluster := make([]string, n), make([]string, n)
	for i, peer := range addrs[n:] {
		reached[i] = peer
		if opts.Reach != nil {
			if reached[i], err = opts.Reach(ctx, peer); err != nil {
				return err
			}
		}
		cluster[i] = name(i) + "=http://" + reached[i]
	}
	token := rand.Text()
	c.members = make([]*process.Process, n)
	for i, addr := range c.addrs {
		args := []string{
			"--name", name(i), "--data-dir", filepath.Join(c.dir, name(i)), "--logger", "zap",
			"--listen-client-urls", "http://" + addr, "--advertise-client-urls", "http://" + addr,
			"--listen-peer-urls", "http://" + addrs[n+i], "--initial-advertise-peer-urls", "http://" + reached[i],
			"--initial-cluster", strings.Join(cluster, ","), "--initial-cluster-token", token,
			"--initial-cluster-state", "new",
		}
		if opts.Election > 0 {
			args = append(args, "--election-timeout", strconv.FormatInt(opts.Election.Milliseconds(), 10),
				"--heartbeat-interval", strconv.FormatInt((opts.Election/10).Milliseconds(), 10))
		}
		c.args = append(c.args, append(args, opts.Args...))
		c.logs = append(c.logs, filepath.Join(dir, filepath.Base(c.dir)+"-"+name(i)+".log"))
		if err := c.run(i); err != nil {
			return err
		}
	}
	return c.Await(ctx)
}

// run starts a member.
func (c *Cluster) run(i int) error {
	p, err := process.Start(process.Command{Path: program(), Args: c.args[i], Log: c.logs[i]})
	if err != nil {
		return err
	}
	c.members[i] = p
	return nil
}

// program returns the program to run.
func program() string { return cmp.Or(os.Getenv("ETCD"), "etcd") }

// Find returns why etcd is not installed, or nil.
func Find() error {
	_, err := exec.LookPath(program())
	return err
}

func name(i int) string { return "member" + strconv.Itoa(i) }

// Await returns when all members agree on a leader.
func (c *Cluster) Await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		err := c.agree(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
		for i, p := range c.members {
			select {
			case <-p.Exited():
				return fmt.Errorf("etcd %s has ended", c.addrs[i])
			default:
			}
		}
	}
}

func (c *Cluster) agree(ctx context.Context) error {
	var leader string
	for i, addr := range c.addrs {
		s, err := status(ctx, addr)
		if err != nil {
			return err
		}
		if i == 0 {
			leader = s.Leader
		}
		if s.Leader == "" || s.Leader == "0" || s.Leader != leader {
			return fmt.Errorf("etcd %s has no leader yet", addr)
		}
	}
	return nil
}

// Addrs returns the addresses of the members.
func (c *Cluster) Addrs() []string { return c.addrs }

// Dir returns where the cluster keeps its data.
func (c *Cluster) Dir() string { return c.dir }

// InMemory reports whether the cluster keeps its data in memory.
func (c *Cluster) InMemory() bool { return c.ram }

// Version returns the version of the first member.
func (c *Cluster) Version(ctx context.Context) (string, error) {
	s, err := status(ctx, c.addrs[0])
	return s.Version, err
}

// Leader returns which member leads.
func (c *Cluster) Leader(ctx context.Context) (int, error) {
	err := errors.New("no member of etcd says that it leads")
	for i, addr := range c.addrs {
		s, failed := status(ctx, addr)
		if failed == nil && s.Leader == s.Header.Member {
			return i, nil
		}
		err = errors.Join(err, failed)
	}
	return 0, err
}

// Pause stops a member as it is: see [process.Process.Pause].
func (c *Cluster) Pause(i int) error { return c.members[i].Pause() }

// Resume lets a paused member continue.
func (c *Cluster) Resume(i int) error { return c.members[i].Resume() }

// Kill ends a member at once, and returns when it is gone.
func (c *Cluster) Kill(i int) { c.members[i].Kill() }

// Restart starts a member that was killed, with the data that it had.
func (c *Cluster) Restart(i int) error { return c.run(i) }

// End ends the cluster and removes its data.
func (c *Cluster) End() error {
	for _, p := range c.members {
		if p != nil {
			p.Kill()
		}
	}
	if c.dir == "" {
		return nil
	}
	return os.RemoveAll(c.dir)
}
