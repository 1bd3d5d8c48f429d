package namespace

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
)

// conn is a connection to Redis in a namespace. As any net.Conn of go-redis, it has one writer and one reader at a time.
type conn struct {
	net.Conn

	in      Namespace
	prefix  []byte
	partial []byte   // the beginning of a command whose end was not written yet
	out     []byte   // what is sent; kept for its space
	args    [][]byte // of the command that is written
	named   []bool   // which of them have the prefix

	replies replies
}

// plainConn is a conn on which go-redis can look whether the server has closed it.
type plainConn struct {
	*conn

	raw syscall.Conn
}

func (c plainConn) SyscallConn() (syscall.RawConn, error) { return c.raw.SyscallConn() }

// namespace returns that of the connection.
func (c *conn) namespace() Namespace { return c.in }

// on returns a connection in a namespace: the same if it is there.
func (n Namespace) on(c net.Conn) (net.Conn, error) {
	if has, ok := c.(interface{ namespace() Namespace }); ok {
		if has.namespace().Name == n.Name {
			return c, nil
		}
		return nil, errors.Join(fmt.Errorf("the options have the namespace %q already, and are to have %q: give both the same",
			has.namespace().Name, n.Name), c.Close())
	}
	in := &conn{Conn: c, in: n, prefix: []byte(n.String())}
	in.replies.prefix = in.prefix
	if raw, ok := c.(syscall.Conn); ok {
		return plainConn{in, raw}, nil
	}
	return in, nil
}

// errWritten is the error of what is no command.
var errWritten = errors.New("namespace: the client has sent what is no command of Redis")

// Write sends the commands of p that are complete, with those before it that were not.
func (c *conn) Write(p []byte) (int, error) {
	in := p
	if len(c.partial) > 0 {
		c.partial = append(c.partial, p...)
		in = c.partial
	}
	c.out = c.out[:0]
	for len(in) > 0 {
		size, err := c.read(in)
		if err != nil {
			return 0, err
		}
		if size == 0 {
			break
		}
		c.rewrite()
		in = in[size:]
	}
	c.partial = append(c.partial[:0], in...)
	if len(c.out) > 0 {
		if _, err := c.Conn.Write(c.out); err != nil {
			return 0, err
		}
	}
	if cap(c.out) > mostSpace {
		c.out = nil
	}
	if len(c.partial) == 0 && cap(c.partial) > mostSpace {
		c.partial = nil
	}
	return len(p), nil
}

// mostSpace is how much a connection keeps of the space that a large command took.
const mostSpace = 64 << 10

// read reads a command into args, and returns its size: 0 if it is not complete.
func (c *conn) read(in []byte) (size int, err error) {
	n, at, err := header(in, '*')
	if at == 0 || err != nil {
		return 0, err
	}
	if n < 1 {
		return 0, errWritten
	}
	c.args, c.named = c.args[:0], c.named[:0]
	for range n {
		length, head, err := header(in[at:], '$')
		if err != nil {
			return 0, err
		}
		if head == 0 || len(in)-at-head < length+2 {
			return 0, nil
		}
		at += head
		c.args = append(c.args, in[at:at+length])
		c.named = append(c.named, false)
		at += length + 2
	}
	return at, nil
}

// header reads a line with a kind and a number, and returns its size: 0 if it is not complete.
func header(in []byte, kind byte) (n, size int, err error) {
	if len(in) == 0 {
		return 0, 0, nil
	}
	if in[0] != kind {
		return 0, 0, errWritten
	}
	end := bytes.IndexByte(in, '\n')
	if end < 0 {
		return 0, 0, nil
	}
	n, err = strconv.Atoi(string(bytes.TrimSuffix(in[1:end], []byte{'\r'})))
	if err != nil || n < 0 {
		return 0, 0, errWritten
	}
	return n, end + 1, nil
}

// rewrite adds the command in args to out, with its names in the namespace.
func (c *conn) rewrite() {
	name := c.args[0]
	shape := shapeOf(c.args)
	if shape == unknown && len(c.args) > 3 && bytes.EqualFold(name, []byte("acl")) { // ACL DRYRUN user command ...
		shape = none
		if of := shapeOf(c.args[3:]); of == script || !of.positions(c.args[3:], func(i int) { c.mark(i + 3) }) {
			shape = unknown
		}
	}
	names := shape != unknown && shape.positions(c.args, c.mark)
	switch {
	case !names:
		c.refuse()
	case shape == script && len(c.args) > 1:
		c.args[1] = c.source(strings.HasPrefix(strings.ToLower(string(name)), "evalsha"), c.args[1])
	case shape == scripts && len(c.args) > 2:
		switch sub := strings.ToLower(string(c.args[1])); sub {
		case "load", "exists":
			for i := range c.args[2:] {
				c.args[i+2] = c.source(sub == "exists", c.args[i+2])
			}
		}
	case shape == scan:
		c.match()
	}
	c.replies.expect(shape)
	c.out = append(strconv.AppendInt(append(c.out, '*'), int64(len(c.args)), 10), '\r', '\n')
	for i, arg := range c.args {
		size := len(arg)
		if c.named[i] {
			size += len(c.prefix)
		}
		c.out = append(strconv.AppendInt(append(c.out, '$'), int64(size), 10), '\r', '\n')
		if c.named[i] {
			c.out = append(c.out, c.prefix...)
		}
		c.out = append(append(c.out, arg...), '\r', '\n')
	}
}

// mark says that an argument is a name.
func (c *conn) mark(i int) { c.named[i] = c.in.covers(string(c.args[i])) }

// source returns the text or the SHA-1 that a script has in Redis.
func (c *conn) source(sum bool, of []byte) []byte {
	if sum {
		return []byte(c.in.sumOf(string(of)))
	}
	return []byte(c.in.learn(string(of)))
}

// match has a SCAN find names of the namespace alone.
func (c *conn) match() {
	for i := 2; i+1 < len(c.args); i++ {
		if bytes.EqualFold(c.args[i], []byte("match")) {
			c.mark(i + 1)
			return
		}
	}
	c.args = append(c.args, []byte("match"), []byte("*"))
	c.named = append(c.named, false, true)
}

// refuse puts a command in place of one that is not sent. Redis does not know it, and says so with its name.
func (c *conn) refuse() {
	c.args = append(c.args[:0], []byte(strings.ToLower(string(c.args[0]))+" (its keys are not known in a railtoken namespace)"))
	c.named = append(c.named[:0], false)
}

// Read reads replies and messages. Most are passed on as they are.
func (c *conn) Read(p []byte) (int, error) {
	for {
		if n := c.replies.take(p); n > 0 || len(p) == 0 {
			return n, nil
		}
		c.replies.begin()
		n, err := c.Conn.Read(p)
		if n > 0 && c.replies.keep(p[:n]) {
			if err != nil {
				return 0, err
			}
			continue
		}
		return n, err
	}
}
