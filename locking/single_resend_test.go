package locking_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

func TestAnAbandonedAttemptIsGivenBack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var lost replyLoss
	l := newSingle(t, server.Client(t, deadlines, lost.mod), locking.SingleOptions{})
	lost.next()
	lease, err := l.Acquire(t.Context(), []string{"order:1"}, locking.Options{})
	if lease != nil {
		t.Error("a lease without an answer")
	}
	isClear(t, err, `acquire ["order:1"]`)
	if !errors.Is(err, locking.ErrUnavailable) {
		t.Errorf("error %v, want ErrUnavailable", err)
	}
	if reply := lost.reply(); !strings.HasPrefix(reply, ":1") {
		t.Fatalf("the server has answered %q, want that the key was taken", reply)
	}
	release(t, acquire(t, l, locking.Options{}, "order:1"))
}

// A client would send a command again when its connection breaks before the reply, and the server would execute it
// twice.

func TestAnUnansweredAcquireIsGivenBackAndRepeated(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var lost replyLoss
	a := newSingle(t, server.Client(t, lost.mod), locking.SingleOptions{})
	b := newSingle(t, server.Client(t), locking.SingleOptions{})
	release(t, acquire(t, a, locking.Options{}, "order:1")) // the script is known
	lost.next()
	lease := acquire(t, a, locking.Options{}, "order:1")
	token, err := lease.Fence(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if reply := lost.reply(); !strings.HasPrefix(reply, ":1") || strings.Contains(reply, strconv.FormatInt(token, 10)) {
		t.Errorf("the reply that was lost is %q, the lease has token %d", reply, token)
	}
	if holder := refused(t, b, "order:1"); holder.Fence != token {
		t.Errorf("the server has token %d, the lease %d", holder.Fence, token)
	}
	if err := lease.Renew(t.Context()); err != nil {
		t.Errorf("renew: %v", err)
	}
	release(t, lease)
	release(t, acquire(t, b, locking.Options{}, "order:1"))
}

func TestARenewalWithoutAnAnswerIsNoLoss(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var lost replyLoss
	l := newSingle(t, server.Client(t, lost.mod), locking.SingleOptions{})
	lease := acquire(t, l, locking.Options{}, "order:1")
	if err := lease.Renew(t.Context()); err != nil { // the script is known
		t.Fatal(err)
	}
	lost.next()
	isClear(t, lease.Renew(t.Context()), `renew ["order:1"]`)
	if reply := lost.reply(); reply != ":0\r\n" {
		t.Errorf("the reply that was lost is %q", reply)
	}
	if err := lease.Renew(t.Context()); err != nil {
		t.Errorf("renew: %v", err)
	}
	release(t, lease)
}

func TestARepeatedReleaseIsNoLoss(t *testing.T) {
	t.Parallel()
	for name, mod := range map[string]func(*redis.Options){
		"by the client":  func(*redis.Options) {},
		"by the release": deadlines, // a client that sends nothing twice
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			var lost replyLoss
			l := newSingle(t, server.Client(t, mod, lost.mod), locking.SingleOptions{})
			release(t, acquire(t, l, locking.Options{}, "order:1")) // the script is known
			lease := acquire(t, l, locking.Options{}, "order:1")
			lost.next()
			release(t, lease)
			if reply := lost.reply(); reply != ":0\r\n" {
				t.Errorf("the reply that was lost is %q", reply)
			}
			release(t, acquire(t, l, locking.Options{}, "order:1"))
		})
	}
}

func TestForgottenScriptsAreSentAgain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t, deadlines)
	l := newSingle(t, client, locking.SingleOptions{})
	flush := func() {
		if err := client.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // each call is tried again, because a busy machine may answer too late
		flush()
		lease := eventually(t, l, "order:1")
		flush()
		await(t, "renewed", func() bool {
			err := lease.Renew(t.Context())
			if errors.Is(err, locking.ErrLost) {
				t.Fatal(err)
			}
			return err == nil
		})
		flush()
		release(t, lease)
	}
}

// replyLoss breaks a client's connection after the server has executed a script and before the client sees the reply.
type replyLoss struct {
	kind  string // how the reply begins, empty for any
	armed atomic.Bool
	lost  atomic.Pointer[string]
}

// next loses the reply to the next script.
func (r *replyLoss) next() { r.armed.Store(true) }

// reply returns what was lost.
func (r *replyLoss) reply() string {
	if lost := r.lost.Load(); lost != nil {
		return *lost
	}
	return "no reply was lost"
}

func (r *replyLoss) mod(o *redis.Options) {
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &lossyConn{Conn: conn, loss: r}, nil
	}
}

type lossyConn struct {
	net.Conn
	loss   *replyLoss
	script atomic.Bool // the last command was a script
}

func (c *lossyConn) Write(b []byte) (int, error) {
	c.script.Store(bytes.Contains(bytes.ToLower(b), []byte("eval")))
	return c.Conn.Write(b)
}

func (c *lossyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n == 0 || !c.script.Load() || bytes.HasPrefix(b[:n], []byte("-NOSCRIPT")) ||
		!bytes.HasPrefix(b[:n], []byte(c.loss.kind)) || !c.loss.armed.CompareAndSwap(true, false) {
		return n, err
	}
	reply := string(b[:n])
	c.loss.lost.Store(&reply)
	_ = c.Close()
	return 0, io.EOF
}
