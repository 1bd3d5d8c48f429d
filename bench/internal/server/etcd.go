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

// StartEtcd runs a cluster of n members and returns when it has a leader. Their logs go to the directory dir, their data
// to memory where there is room for it, because the redis-servers write nothing to disk either, else to dir too. The
// members reach each other by the addresses that reach returns, or directly when it is nil.
func StartEtcd(ctx context.Context, dir string, n int, reach Reach) (*Etcd, error) {
	var err error
	for range 5 {
		var e *Etcd
		if e, err = startEtcd(ctx, dir, n, reach); err == nil {
			return e, nil
		}
		if ctx.Err() != nil {
			break
		}
		// Most likely another process took a port first.
	}
	return nil, fmt.Errorf("etcd does not start; its log is in %s: %w", dir, err)
}

func startEtcd(ctx context.Context, dir string, n int, reach Reach) (*Etcd, error) {
	addrs, err := freeAddrs(ctx, 2*n)
	if err != nil {
		return nil, err
	}
	e := &Etcd{addrs: addrs[:n]}
	peers := addrs[n:]
	root := dir
	if memory, ok := inMemory(n); ok {
		root, e.ram = memory, true
	}
	if e.dir, err = os.MkdirTemp(root, "bench-etcd-"); err != nil {
		return nil, err
	}
	reached := make([]string, n)
	cluster := make([]string, n)
	for i, peer := range peers {
		reached[i] = peer
		if reach != nil {
			if reached[i], err = reach(ctx, peer); err != nil {
				return nil, errors.Join(err, e.End())
			}
		}
		cluster[i] = member(i) + "=http://" + reached[i]
	}
	token := rand.Text()
	for i, addr := range e.addrs {
		if err := e.start(dir, i,
			"--listen-client-urls", "http://"+addr, "--advertise-client-urls", "http://"+addr,
			"--listen-peer-urls", "http://"+peers[i], "--initial-advertise-peer-urls", "http://"+reached[i],
			"--initial-cluster", strings.Join(cluster, ","), "--initial-cluster-token", token,
		); err != nil {
			return nil, errors.Join(err, e.End())
		}
	}
	e.probe, err = clientv3.New(clientv3.Config{Endpoints: e.addrs, Logger: zap.NewNop()})
	if err == nil {
		err = e.await(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, e.End())
	}
	return e, nil
}

func member(i int) string { return "member" + strconv.Itoa(i) }

func (e *Etcd) start(logs string, i int, args ...string) error {
	log, err := os.OpenFile(filepath.Join(logs, filepath.Base(e.dir)+"-"+member(i)+".log"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	p, err := run(log, "etcd", append(args, "--name", member(i), "--data-dir", filepath.Join(e.dir, member(i)),
		"--initial-cluster-state", "new", "--logger", "zap")...)
	if err != nil {
		return err
	}
	e.members = append(e.members, p)
	return nil
}

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
	var errs []error
	for i, addr := range e.addrs {
		status, err := e.status(ctx, addr)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if status.Leader == status.Header.GetMemberId() {
			return i, nil
		}
	}
	return 0, errors.Join(append(errs, errors.New("no member of etcd says that it leads"))...)
}

// Pause stops a member as it is, see [Server.Pause].
func (e *Etcd) Pause(i int) error { return e.members[i].Pause() }

// Resume lets a paused member run on.
func (e *Etcd) Resume(i int) error { return e.members[i].Resume() }

// Kill ends a member for good and returns when it is gone.
func (e *Etcd) Kill(i int) { e.members[i].end() }

// End ends the cluster and removes its data.
func (e *Etcd) End() error {
	for _, p := range e.members {
		p.end()
	}
	var err error
	if e.probe != nil {
		err = e.probe.Close()
	}
	return errors.Join(err, os.RemoveAll(e.dir))
}
