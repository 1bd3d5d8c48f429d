package line_test

import (
	"bufio"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// A script that touches a key which it does not declare may find in the middle of its work that the key has moved to
// another node.
func TestOnAClusterScriptsDeclareAllTheirKeys(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2)
	client := cluster.Client(t)
	var seen []chan string
	for _, node := range cluster.Nodes() {
		seen = append(seen, monitor(t, node))
	}
	for _, s := range scenes {
		r := newRigOn(t, "cluster", client)
		s.setUp(r)
		_ = s.call(r, r.Engine)
	}
	for name, c := range movingCalls {
		r := newRigOn(t, "cluster", client)
		task := r.Delayed(name, asynq.Unique(limit))
		r.Park(task, "k")
		if c.archived {
			if err := r.Inspect.ArchiveTask(task.Queue, task.ID); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.call(t.Context(), r, task); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	inAllOtherWays(t, newRigOn(t, "cluster", client))

	ran := map[string]bool{}
	for i, node := range cluster.Nodes() {
		if err := node.Client(t).Echo(t.Context(), "the end").Err(); err != nil {
			t.Fatal(err)
		}
		var sha string
		var declared []string
		for {
			source, args := parseMonitored(receive(t, seen[i]))
			if slices.Equal(args, []string{"echo", "the end"}) {
				break
			}
			switch {
			case len(args) == 0:
			case source == "lua":
				name := line.ClusterScripts()[sha]
				if name != "" && len(args) > 1 && !slices.Contains(declared, args[1]) {
					t.Errorf("%s touches %q and declares %q", name, args, declared)
				}
			case args[0] == "eval" && len(args) < 3:
				// The MONITOR of Valkey 8.1 does not escape the quotes of a script. The EVALSHA before it has declared the same keys.
			case strings.EqualFold(args[0], "evalsha") || strings.EqualFold(args[0], "eval"):
				sha = args[1]
				if args[0] == "eval" {
					sum := sha1.Sum([]byte(args[1]))
					sha = hex.EncodeToString(sum[:])
				}
				n, err := strconv.Atoi(args[2])
				if err != nil {
					t.Fatal(err)
				}
				declared = args[3 : 3+n]
				ran[sha] = true
			}
		}
	}
	for sha, name := range line.ClusterScripts() {
		if !ran[sha] {
			t.Errorf("%s was not run: add a call to this test", name)
		}
	}
}

// inAllOtherWays makes the calls that are no scenes.
func inAllOtherWays(t *testing.T, r *rig) {
	t.Helper()
	ctx := t.Context()
	a, b, key := r.Delayed("a"), r.Delayed("b"), r.key("k")
	r.Park(a, "k")
	r.Park(b, "k")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	must(r.inspector().PutFirst(ctx, key, delayqueue.Task(b)))
	_, err := r.Engine.Join(ctx, a, key, line.JoinOptions{})
	must(err)
	_, err = r.Engine.Remove(ctx, a, key)
	must(err)
	_, err = r.Engine.EnqueueInOrder(ctx, key, "test", nil, nil, asynq.Queue(r.name))
	must(err)
	must(r.inspector().PutFirst(ctx, key, delayqueue.Task(a)))
	r.Park(r.Delayed("third"), "k") // its timer is that of one with others before it
	must(r.Engine.Forget(ctx, b))
	must(r.Engine.Watch(ctx, key))
	must(r.Engine.Watch(ctx, r.key("nobody waits")))
	r.Until("both are to be looked at", func() bool {
		return r.Client.ZCount(ctx, r.index()+":owed", "-inf", fmt.Sprint(time.Now().UnixMilli())).Val() == 2
	})
	must(r.Engine.PayOwed(ctx))
	c := r.begun("c")
	ended := time.Now().Add(-(line.LostAfter + line.LeftAfter) / 2).Unix()
	must(r.Client.ZAdd(ctx, "asynq:{"+r.name+"}:lease", redis.Z{Score: float64(ended), Member: c.ID}).Err())
	back, err := r.Engine.BringBack(ctx, c, true)
	must(err)
	if !back {
		t.Error("c was not brought back")
	}
}

// monitor returns what a node does from now on: go-redis gives its own connection for this back too early.
func monitor(t *testing.T, node *redistest.Server) chan string {
	t.Helper()
	conn, err := net.Dial("tcp", node.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		t.Fatal(err)
	}
	lines, replies := make(chan string, 100_000), bufio.NewScanner(conn)
	if !replies.Scan() || replies.Text() != "+OK" {
		t.Fatalf("MONITOR: %q, %v", replies.Text(), replies.Err())
	}
	go func() {
		for replies.Scan() {
			lines <- replies.Text()
		}
	}()
	return lines
}

// parseMonitored reads a line of MONITOR: time [database source] "command" "argument"...
func parseMonitored(line string) (source string, args []string) {
	_, rest, _ := strings.Cut(line, "[")
	from, rest, _ := strings.Cut(rest, "] ")
	_, source, _ = strings.Cut(from, " ")
	for rest != "" {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return source, args
		}
		arg, err := strconv.Unquote(quoted)
		if err != nil {
			return source, args
		}
		args = append(args, arg)
		rest = strings.TrimPrefix(rest[len(quoted):], " ")
	}
	return source, args
}
