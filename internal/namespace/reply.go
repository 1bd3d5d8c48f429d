package namespace

import (
	"bytes"
	"strconv"
	"sync"
)

// replies takes the prefix from those replies that have names in them. While none is expected it looks at nothing. It is
// safe for one writer and one reader.
type replies struct {
	prefix []byte

	mu       sync.Mutex
	messages bool  // there may be messages of channels
	reading  bool  // since the last command
	sent     int   // commands since the connection was last idle
	named    []int // which of them have replies with names, in order
	read     int   // replies of them that were read

	partial []byte // of a reply
	ready   []byte // to be read
}

// expect notes that a command is sent. go-redis reads all replies to its commands before it sends others, except on a
// connection for messages.
func (r *replies) expect(s shape) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reading {
		r.reading, r.sent, r.read, r.named = false, 0, 0, r.named[:0]
	}
	switch s {
	case subscribes:
		r.messages = true
	case scan, listed:
		r.named = append(r.named, r.sent)
	}
	r.sent++
}

// begin says that a reply is read.
func (r *replies) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reading = true
}

// take moves what is ready to p.
func (r *replies) take(p []byte) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := copy(p, r.ready)
	r.ready = r.ready[n:]
	return n
}

// keep takes what has come, if names are expected.
func (r *replies) keep(p []byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.messages && len(r.named) == 0 && len(r.partial) == 0 {
		return false
	}
	r.partial = append(r.partial, p...)
	rest := r.partial
	for len(rest) > 0 {
		size := sizeOf(rest)
		if size == 0 {
			break
		}
		r.pass(rest[:size])
		rest = rest[size:]
	}
	r.partial = append(r.partial[:0], rest...)
	return true
}

// pass makes a reply ready, without the prefix of the names in it.
func (r *replies) pass(reply []byte) {
	push := reply[0] == '>'
	switch {
	case r.messages:
		r.message(reply)
	case !push && len(r.named) > 0 && r.named[0] == r.read:
		r.named = r.named[1:]
		r.strip(reply, func(int) bool { return true })
	default:
		r.ready = append(r.ready, reply...)
	}
	if !push {
		r.read++
	}
}

// message makes a message of a channel ready, or an answer to a subscription.
func (r *replies) message(reply []byte) {
	most := 0
	if reply[0] == '*' || reply[0] == '>' {
		switch kind := secondLine(reply[bytes.IndexByte(reply, '\n')+1:]); string(kind) {
		case "message", "smessage", "subscribe", "unsubscribe", "psubscribe", "punsubscribe", "ssubscribe", "sunsubscribe":
			most = 1
		case "pmessage":
			most = 2
		}
	}
	r.strip(reply, func(n int) bool { return n >= 1 && n <= most })
}

// secondLine returns the contents of a string.
func secondLine(in []byte) []byte {
	_, in, _ = bytes.Cut(in, []byte("\r\n"))
	line, _, _ := bytes.Cut(in, []byte("\r\n"))
	return line
}

// strip makes a reply ready, without the prefix of those of its strings that are names. The first is number 0.
func (r *replies) strip(reply []byte, isName func(n int) bool) {
	n := 0
	for len(reply) > 0 {
		end := bytes.IndexByte(reply, '\n') + 1
		if reply[0] != '$' {
			r.ready = append(r.ready, reply[:end]...)
			reply = reply[end:]
			continue
		}
		if length := number(reply[1:end]); length >= 0 {
			text := reply[end : end+length]
			if isName(n) {
				text = bytes.TrimPrefix(text, r.prefix)
			}
			r.ready = append(strconv.AppendInt(append(r.ready, '$'), int64(len(text)), 10), '\r', '\n')
			r.ready = append(append(r.ready, text...), '\r', '\n')
			end += length + 2
		} else {
			r.ready = append(r.ready, reply[:end]...)
		}
		n++
		reply = reply[end:]
	}
}

// sizeOf returns the size of the first reply; 0 if it is not complete. A line of an unknown kind counts as one.
func sizeOf(in []byte) int {
	at := 0
	for open := 1; open > 0; open-- {
		end := bytes.IndexByte(in[at:], '\n') + 1
		if end == 0 {
			return 0
		}
		line := in[at : at+end]
		at += end
		switch line[0] {
		case '$', '!', '=':
			if n := number(line[1:]); n >= 0 {
				at += n + 2
			}
		case '*', '~', '>':
			open += max(number(line[1:]), 0)
		case '%':
			open += 2 * max(number(line[1:]), 0)
		case '|': // the attributes of the reply that follows
			open += 2*max(number(line[1:]), 0) + 1
		}
		if at > len(in) {
			return 0
		}
	}
	return at
}

// number reads that of a line; -1 if there is none.
func number(line []byte) int {
	n, err := strconv.Atoi(string(bytes.TrimRight(line, "\r\n")))
	if err != nil {
		return -1
	}
	return n
}
