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

// rawTimeout is how long a raw connection waits for its answers, the time that go-redis waits by default for one of
// them.
const rawTimeout = 3 * time.Second

// Raw is what the canonical pattern costs without any client library: the same two commands as [Floor], written by hand
// on a connection for each caller. No library that sends two commands can do better for a lone caller.
var Raw = Kind{Name: NameRaw, Open: func(addrs []string) (*Locker, error) {
	r := &raw{addr: addrs[0]}
	ctx, cancel := context.WithTimeout(context.Background(), rawTimeout)
	defer cancel()
	err := r.with(ctx, func(conn *rawConn) (err error) {
		r.script, err = conn.ask("SCRIPT", "LOAD", compareAndDeleteScript)
		return err
	})
	return &Locker{Pair: r.pair, Do: doesNotWait, Close: r.close}, err
}}

// raw lends its connections, so there are as many of them as callers at the same time.
type raw struct {
	addr, script string

	mu   sync.Mutex
	free []*rawConn
}

// ttlMillis is the TTL as SET wants it.
var ttlMillis = strconv.FormatInt(TTL.Milliseconds(), 10)

func (r *raw) pair(ctx context.Context, key string) error {
	value := rand.Text()
	return r.with(ctx, func(conn *rawConn) error {
		if answer, err := conn.ask("SET", key, value, "NX", "PX", ttlMillis); err != nil || answer != "OK" {
			return errors.Join(err, errTaken)
		}
		if answer, err := conn.ask("EVALSHA", r.script, "1", key, value); err != nil || answer != "1" {
			return errors.Join(err, errGone)
		}
		return nil
	})
}

// with lends a connection. One whose answers may no longer fit its questions is not lent again.
func (r *raw) with(ctx context.Context, use func(*rawConn) error) error {
	conn, err := r.take(ctx)
	if err != nil {
		return err
	}
	end := time.Now().Add(rawTimeout)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(end) {
		end = deadline
	}
	if err := conn.SetDeadline(end); err != nil {
		return errors.Join(err, conn.Close())
	}
	err = use(conn)
	if conn.broken {
		return errors.Join(err, conn.Close())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free = append(r.free, conn)
	return err
}

func (r *raw) take(ctx context.Context) (*rawConn, error) {
	r.mu.Lock()
	if n := len(r.free); n > 0 {
		defer r.mu.Unlock()
		conn := r.free[n-1]
		r.free = r.free[:n-1]
		return conn, nil
	}
	r.mu.Unlock()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", r.addr)
	if err != nil {
		return nil, err
	}
	return &rawConn{Conn: conn, in: bufio.NewReader(conn)}, nil
}

func (r *raw) close() (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, conn := range r.free {
		err = errors.Join(err, conn.Close())
	}
	r.free = nil
	return err
}

// rawConn is a connection with one command under way at a time.
type rawConn struct {
	net.Conn

	in     *bufio.Reader
	out    []byte
	broken bool
}

// ask sends a command and returns its answer, "" for nil.
func (c *rawConn) ask(args ...string) (answer string, err error) {
	c.out = fmt.Appendf(c.out[:0], "*%d\r\n", len(args))
	for _, arg := range args {
		c.out = append(strconv.AppendInt(append(c.out, '$'), int64(len(arg)), 10), "\r\n"...)
		c.out = append(append(c.out, arg...), "\r\n"...)
	}
	c.broken = true // unless all of the answer is read
	if _, err := c.Write(c.out); err != nil {
		return "", err
	}
	line, err := c.line()
	if err != nil {
		return "", err
	}
	if line[0] == '$' && line != "$-1" {
		answer, err = c.line() // no answer here has a line end in it
		c.broken = err != nil
		return answer, err
	}
	c.broken = false
	if line[0] == '-' {
		return "", errors.New(line[1:])
	}
	return strings.TrimPrefix(line[1:], "-1"), nil
}

func (c *rawConn) line() (string, error) {
	line, err := c.in.ReadString('\n')
	if err == nil && len(line) < 3 {
		err = fmt.Errorf("the server answers %q", line)
	}
	return strings.TrimSuffix(line, "\r\n"), err
}
