package worker

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// producer returns a client and an inspector of a Redis.
func producer(t testing.TB, addr string) (*Client, *asynq.Inspector) {
	t.Helper()
	c, err := NewClient(Redis{Addr: addr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c, asynq.NewInspectorFromRedisClient(c.conn)
}

// lossy is a TCP proxy that loses, when told to, the reply to one command that the server has executed.
type lossy struct {
	addr, target string
	marker       []byte // in the command whose reply is lost
	armed        atomic.Bool
	lost         atomic.Int32
	conns        sync.WaitGroup
}

// loseReply starts a proxy that loses the reply to the next command that has the marker in it.
func loseReply(t testing.TB, target, marker string) *lossy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &lossy{addr: l.Addr().String(), target: target, marker: []byte(marker)}
	p.armed.Store(true)
	t.Cleanup(func() {
		_ = l.Close()
		p.conns.Wait()
	})
	p.conns.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			p.conns.Go(func() { p.serve(client) })
		}
	})
	return p
}

// serve passes on what the two say, until one of them ends it or a reply is to be lost.
func (p *lossy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	var marked atomic.Bool // the next reply on this connection is to a marked command
	p.conns.Go(func() {
		defer server.Close()
		_ = pass(client, server, func(command []byte) bool {
			marked.Store(bytes.Contains(command, p.marker))
			return true
		})
	})
	_ = pass(server, client, func(reply []byte) bool {
		if !marked.Load() || bytes.HasPrefix(reply, []byte("-")) || !p.armed.Swap(false) {
			return true
		}
		p.lost.Add(1)
		return false
	})
}

// pass copies what it reads, for as long as look agrees.
func pass(from, to net.Conn, look func([]byte) bool) error {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil || !look(buf[:n]) {
			return err
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return err
		}
	}
}

func TestLostReplyEnqueuesOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for name, opts := range map[string][]asynq.Option{
		"pending":   {asynq.Queue("pending")},
		"scheduled": {asynq.Queue("scheduled"), asynq.ProcessIn(time.Hour)},
		"unique":    {asynq.Queue("unique"), asynq.Unique(time.Hour)},
		"later":     {asynq.Queue("later"), asynq.Unique(time.Hour), asynq.ProcessIn(time.Hour)},
		"given ID":  {asynq.Queue("given ID"), asynq.TaskID("mine")},
		"archived":  {asynq.Queue("archived"), asynq.MaxRetry(0), asynq.Retention(time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := loseReply(t, server.Addr(), "marked-type")
			c, inspect := producer(t, proxy.addr)
			info, err := c.Enqueue(t.Context(), "marked-type", order{"42"}, opts...)
			if err != nil {
				t.Fatalf("a lost reply gives %v", err)
			}
			if proxy.lost.Load() != 1 {
				t.Fatal("no reply was lost")
			}
			if info.Queue != name || info.Type != "marked-type" || string(info.Payload) != `{"id":"42"}` {
				t.Errorf("the task is told to be %+v", info)
			}
			got, err := inspect.GetQueueInfo(name)
			if err != nil || got.Size != 1 {
				t.Errorf("%+v, %v; want one task", got, err)
			}
			if _, err := inspect.GetTaskInfo(name, info.ID); err != nil {
				t.Errorf("the task has not the ID that was told: %v", err)
			}
		})
	}
}
