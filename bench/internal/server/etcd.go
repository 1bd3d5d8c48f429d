package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Etcd is a cluster of etcd processes that this program has started.
type Etcd struct {
	members []*process
	addrs   []string
	dir     string
	ram     bool
	probe   *clientv3.Client
}

// Reach returns the address by which the listener of an address is reached from elsewhere.
type Reach func(ctx context.Context, addr string) (string, error)

// StartEtcd runs a cluster of n members and returns when it has a leader. Their logs go to the directory dir, their
// data to memory where there is room for it, because the redis-servers write nothing to disk either, else to dir too.
// The members reach each other by the addresses that reach returns, or directly when it is nil.
func StartEtcd(ctx context.Context, dir string, n int, reach Reach) (*Etcd, error) {
	var err error
	for range 5 {
		e := &Etcd{}
		if err = e.start(ctx, dir, n, reach); err == nil {
			return e, nil
		}
		err = errors.Join(err, e.End())
		if ctx.Err() != nil {
			break
		}
		// Most likely another process took a port first.
	}
	return nil, fmt.Errorf("etcd does not start; its log is in %s: %w", dir, err)
}

func (e *Etcd) start(ctx context.Context, dir string, n int, reach Reach) error {
	addrs, err := freeAddrs(ctx, 2*n)
	if err != nil {
		return err
	}
	e.addrs = addrs[:n]
	root, ram := inMemory(n)
	if e.ram = ram; !ram {
		root = dir
	}
	if e.dir, err = os.MkdirTemp(root, "bench-etcd-"); err != nil {
		return err
	}
	reached, cluster := make([]string, n), make([]string, n)
	for i, peer := range addrs[n:] {
		reached[i] = peer
		if reach != nil {
			if reached[i], err = reach(ctx, peer); err != nil {
				return err
			}
		}
		cluster[i] = member(i) + "=http://" + reached[i]
	}
	token := rand.Text()
	for i, addr := range e.addrs {
		log, err := os.Create(filepath.Join(dir, filepath.Base(e.dir)+"-"+member(i)+".log"))
		if err != nil {
			return err
		}
		p, err := run(log, "etcd", "--name", member(i), "--data-dir", filepath.Join(e.dir, member(i)), "--logger", "zap",
			"--listen-client-urls", "http://"+addr, "--advertise-client-urls", "http://"+addr,
			"--listen-peer-urls", "http://"+addrs[n+i], "--initial-advertise-peer-urls", "http://"+reached[i],
			"--initial-cluster", strings.Join(cluster, ","), "--initial-cluster-token", token,
			"--initial-cluster-state", "new")
		if err := errors.Join(err, log.Close()); err != nil {
			return err
		}
		e.members = append(e.members, p)
	}
	if e.probe, err = clientv3.New(clientv3.Config{Endpoints: e.addrs, Logger: zap.NewNop()}); err != nil {
		return err
	}
	return e.await(ctx)
}

func member(i int) string { return "member" + strconv.Itoa(i) }

// await returns when the members agree on a leader.
func (e *Etcd) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		err := e.agree(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
		for i, p := range e.members {
			select {
			case <-p.exited:
				return fmt.Errorf("etcd %s has ended", e.addrs[i])
			default:
			}
		}
	}
}

func (e *Etcd) agree(ctx context.Context) error {
	var leader uint64
	for i, addr := range e.addrs {
		status, err := e.status(ctx, addr)
		if err != nil {
			return err
		}
		if i == 0 {
			leader = status.Leader
		}
		if status.Leader == 0 || status.Leader != leader {
			return fmt.Errorf("etcd %s has no leader yet", addr)
		}
	}
	return nil
}

func (e *Etcd) status(ctx context.Context, addr string) (*clientv3.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return e.probe.Status(ctx, addr)
}

// Addrs are the addresses of the members.
func (e *Etcd) Addrs() []string { return e.addrs }

// Dir is where the cluster keeps its data.
func (e *Etcd) Dir() string { return e.dir }

// InMemory reports whether the cluster keeps its data in memory.
func (e *Etcd) InMemory() bool { return e.ram }

// Version returns the version of the first member.
func (e *Etcd) Version(ctx context.Context) (string, error) {
	status, err := e.status(ctx, e.addrs[0])
	if err != nil {
		return "", err
	}
	return status.Version, nil
}

// Leader returns which member leads.
func (e *Etcd) Leader(ctx context.Context) (int, error) {
	err := errors.New("no member of etcd says that it leads")
	for i, addr := range e.addrs {
		status, failed := e.status(ctx, addr)
		if failed == nil && status.Leader == status.Header.GetMemberId() {
			return i, nil
		}
		err = errors.Join(err, failed)
	}
	return 0, err
}

// Pause stops a member as it is, see [Server.Pause].
func (e *Etcd) Pause(i int) error { return e.members[i].Pause() }

// Resume lets a paused member run on.
func (e *Etcd) Resume(i int) error { return e.members[i].Resume() }

// Kill ends a member for good and returns when it is gone.
func (e *Etcd) Kill(i int) { e.members[i].end() }

// End ends the cluster and removes its data.
func (e *Etcd) End() (err error) {
	for _, p := range e.members {
		p.end()
	}
	if e.probe != nil {
		err = e.probe.Close()
	}
	if e.dir != "" {
		err = errors.Join(err, os.RemoveAll(e.dir))
	}
	return err
}
