package traces

import (
	"bufio"
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// limit bounds every wait for an event.
const limit = 30 * time.Second

// recorder reads what a server executes.
type recorder struct {
	client *redis.Client // of the recorder
	conn   net.Conn
	lines  chan []line
	failed error

	mu      sync.Mutex
	workers map[string]int // by the addresses of their connections
}

// record begins to record what a server executes.
func record(t *testing.T, server *redistest.Server) *recorder {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	r := &recorder{client: server.Client(t), conn: conn, lines: make(chan []line, 1), workers: map[string]int{}}
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	if ok, err := in.ReadString('\n'); err != nil || ok != "+OK\r\n" {
		t.Fatalf("MONITOR answers %q, %v", ok, err)
	}
	go r.read(in)
	return r
}

// read reads until the end of the recording.
func (r *recorder) read(in *bufio.Reader) {
	var lines []line
	defer func() { r.lines <- lines }()
	for {
		text, err := in.ReadString('\n')
		if err != nil {
			r.failed = err
			return
		}
		l, err := parseLine(strings.TrimSuffix(text, "\r\n"))
		if err != nil {
			r.failed = err
			return
		}
		if l.name() == "ECHO" && l.args[1] == mark+" "+markEnd {
			return
		}
		lines = append(lines, l)
	}
}

// mark has Redis note something, in the order of the scripts.
func (r *recorder) mark(what string) error {
	return r.client.Echo(context.Background(), mark+" "+what).Err()
}

// end ends the recording, and returns the lines.
func (r *recorder) end(t *testing.T) []line {
	t.Helper()
	if err := r.mark(markEnd); err != nil {
		t.Fatal(err)
	}
	lines := redistest.Receive(t, r.lines, limit)
	if r.failed != nil {
		t.Fatal(r.failed)
	}
	return lines
}

// dial connects a worker, so that it is known which connections it has.
func (r *recorder) dial(worker int) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err == nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.workers[conn.LocalAddr().String()] = worker
		}
		return conn, err
	}
}

// workerOf returns the worker with a connection, or nobody.
func (r *recorder) workerOf(addr string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if worker, ok := r.workers[addr]; ok {
		return worker
	}
	return nobody
}
