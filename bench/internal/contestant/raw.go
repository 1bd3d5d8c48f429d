package contestant

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// rawTimeout is how long a raw connection waits for its answers, the time that go-redis waits by default for one of them.
const rawTimeout = 3 * time.Second

// Raw is what the canonical pattern costs without any client library: the same two commands as [Floor], written by hand on a connection
// for each caller. No library that sends two commands can do better for a lone caller.
var Raw = Kind{Name: NameRaw, Open: func(addrs []string) (Locker, error) { return newRaw(addrs[0]) }}

// raw lends its connections, so there are as many of them as callers at the same time.
type raw struct {
	addr, script string

	mu     sync.Mutex
	free   []*rawConn
	closed bool
}

func newRaw(addr string) (*raw, error) {
	r := &raw{addr: addr}
	ctx, cancel := context.WithTimeout(context.Background(), rawTimeout)
	defer cancel()
	conn, err := r.take(ctx)
	if err != nil {
		return nil, err
	}
	defer r.give(conn)
	r.script, err = conn.ask(ctx, "SCRIPT", "LOAD", compareAndDeleteScript)
	return r, err
}

// Pair acquires and releases.
func (r *raw) Pair(ctx context.Context, key string) error {
	conn, err := r.take(ctx)
	if err != nil {
		return err
	}
	defer r.give(conn)
	value := rand.Text()
	switch answer, err := conn.ask(ctx, "SET", key, value, "NX", "PX", ttlMillis); {
	case err != nil:
		return err
	case answer != "OK":
		return errTaken
	}
	switch answer, err := conn.ask(ctx, "EVALSHA", r.script, "1", key, value); {
	case err != nil:
		return err
	case answer != "1":
		return errGone
	}
	return nil
}

// ttlMillis is the TTL as SET wants it.
var ttlMillis = strconv.FormatInt(TTL.Milliseconds(), 10)

// Do is not what it is for.
func (r *raw) Do(context.Context, string, func()) error { return errors.ErrUnsupported }

// Close ends the connections.
func (r *raw) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	var errs []error
	for _, conn := range r.free {
		errs = append(errs, conn.Close())
	}
	r.free = nil
	return errors.Join(errs...)
}

func (r *raw) take(ctx context.Context) (*rawConn, error) {
	r.mu.Lock()
	if n := len(r.free); n > 0 {
		conn := r.free[n-1]
		r.free = r.free[:n-1]
		r.mu.Unlock()
		return conn, nil
	}
	r.mu.Unlock()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", r.addr)
	if err != nil {
		return nil, err
	}
	return &rawConn{Conn: conn, in: bufio.NewReader(conn)}, nil
}

// give takes a connection back, but for one whose answers may no longer fit its questions.
func (r *raw) give(conn *rawConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if conn.broken || r.closed {
		_ = conn.Close()
		return
	}
	r.free = append(r.free, conn)
}

// rawConn is a connection with one command under way at a time.
type rawConn struct {
	net.Conn

	in     *bufio.Reader
	out    []byte
	broken bool
}

// ask sends a command and returns its answer, "" for nil.
func (c *rawConn) ask(ctx context.Context, args ...string) (answer string, err error) {
	c.out = append(c.out[:0], '*')
	c.out = strconv.AppendInt(c.out, int64(len(args)), 10)
	for _, arg := range args {
		c.out = append(c.out, "\r\n$"...)
		c.out = strconv.AppendInt(c.out, int64(len(arg)), 10)
		c.out = append(c.out, "\r\n"...)
		c.out = append(c.out, arg...)
	}
	c.out = append(c.out, "\r\n"...)
	c.broken = true // unless all of the answer is read
	end := time.Now().Add(rawTimeout)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(end) {
		end = deadline
	}
	if err := c.SetDeadline(end); err != nil {
		return "", err
	}
	if _, err := c.Write(c.out); err != nil {
		return "", err
	}
	line, err := c.line()
	if err != nil {
		return "", err
	}
	switch kind, rest := line[0], line[1:]; kind {
	case '+', ':':
		answer = rest
	case '-':
		err = errors.New(rest)
	case '$':
		if rest == "-1" {
			break
		}
		if answer, err = c.line(); err != nil { // no answer here has a line end in it
			return "", err
		}
	default:
		return "", fmt.Errorf("the server answers %q", line)
	}
	c.broken = false
	return answer, err
}

func (c *rawConn) line() (string, error) {
	line, err := c.in.ReadString('\n')
	if err != nil {
		return "", err
	}
	if len(line) < 3 {
		return "", fmt.Errorf("the server answers %q", line)
	}
	return strings.TrimSuffix(line, "\r\n"), nil
}
