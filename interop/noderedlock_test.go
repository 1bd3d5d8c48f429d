package interop_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// nodeUser takes locks with the npm package redlock, in a node process that node/driver.js describes.
type nodeUser struct {
	degraded bool // some of the servers do not run, so errors are no surprise

	mu       sync.Mutex
	requests io.WriteCloser
	last     int
	waiting  map[int]chan nodeReply // by request
	ended    chan struct{}          // closed with the process's output
}

type nodeRequest struct {
	ID   int    `json:"id"`
	Op   string `json:"op"`
	Name string `json:"name,omitempty"`
	TTL  int64  `json:"ttl,omitempty"` // ms
	Lock int    `json:"lock,omitempty"`
}

type nodeReply struct {
	ID     int      `json:"id"`
	OK     bool     `json:"ok"`
	Errors []string `json:"errors"`
}

func openNode(t *testing.T, servers []*redistest.Server) foreign {
	if _, err := os.Stat("node/node_modules/redlock/package.json"); err != nil {
		t.Fatalf("the npm packages are not installed, \"make interop\" does it: %v", err)
	}
	args, degraded := []string{"node/driver.js"}, false
	for _, s := range servers {
		args = append(args, s.Addr())
		degraded = degraded || s.PID() == 0
	}
	cmd := exec.CommandContext(context.Background(), "node", args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	requests, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	replies, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	u := &nodeUser{degraded: degraded, requests: requests, waiting: map[int]chan nodeReply{}, ended: make(chan struct{})}
	go u.read(replies)
	t.Cleanup(func() {
		_ = requests.Close() // the driver ends with it
		select {
		case <-u.ended:
		case <-time.After(patience):
			t.Errorf("node process %d did not end with its input", cmd.Process.Pid)
			_ = cmd.Process.Kill()
			<-u.ended
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("node: %v\n%s", err, stderr.String())
		}
	})
	return u
}

func (u *nodeUser) read(replies io.Reader) {
	defer close(u.ended)
	lines := bufio.NewScanner(replies)
	for lines.Scan() {
		var reply nodeReply
		if err := json.Unmarshal(lines.Bytes(), &reply); err != nil {
			return // whoever waits is told that the process has ended
		}
		u.mu.Lock()
		wait := u.waiting[reply.ID]
		delete(u.waiting, reply.ID)
		u.mu.Unlock()
		wait <- reply
	}
}

// ask sends one request and returns its id and the reply.
func (u *nodeUser) ask(ctx context.Context, r nodeRequest) (int, nodeReply, error) {
	wait := make(chan nodeReply, 1)
	u.mu.Lock()
	u.last++
	r.ID = u.last
	u.waiting[r.ID] = wait
	line, err := json.Marshal(r)
	if err == nil {
		_, err = u.requests.Write(append(line, '\n'))
	}
	u.mu.Unlock()
	if err != nil {
		return 0, nodeReply{}, err
	}
	select {
	case reply := <-wait:
		if len(reply.Errors) > 0 && !u.degraded {
			return 0, nodeReply{}, fmt.Errorf("node, %s: %q", r.Op, reply.Errors)
		}
		return r.ID, reply, nil
	case <-u.ended:
		return 0, nodeReply{}, errors.New("the node process has ended")
	case <-ctx.Done():
		return 0, nodeReply{}, ctx.Err()
	}
}

func (u *nodeUser) lock(ctx context.Context, name string, ttl time.Duration) (foreignLock, error) {
	id, reply, err := u.ask(ctx, nodeRequest{Op: "lock", Name: name, TTL: ttl.Milliseconds()})
	if err != nil {
		return nil, err
	}
	if !reply.OK {
		return nil, errTaken
	}
	return nodeLock{u, id}, nil
}

type nodeLock struct {
	user *nodeUser
	id   int
}

func (l nodeLock) unlock(ctx context.Context) (bool, error) { return l.ask(ctx, "unlock") }
func (l nodeLock) extend(ctx context.Context) (bool, error) { return l.ask(ctx, "extend") }

func (l nodeLock) ask(ctx context.Context, op string) (bool, error) {
	_, reply, err := l.user.ask(ctx, nodeRequest{Op: op, Lock: l.id})
	return reply.OK, err
}
