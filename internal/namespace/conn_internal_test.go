package namespace

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
)

// wire is a server that keeps what it was sent, and sends what it was given.
type wire struct {
	net.Conn // nil

	sent  strings.Builder
	reply io.Reader
}

func (w *wire) Write(p []byte) (int, error) { return w.sent.Write(p) }
func (w *wire) Read(p []byte) (int, error)  { return w.reply.Read(p) }

// resp returns a command as it is sent.
func resp(command string) string {
	args := strings.Fields(command)
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return b.String()
}

func TestNamesInCommandsHaveThePrefix(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]string{
		"ping":                                 "ping",
		"GET a":                                "GET n:a",
		"set asynq:{q}:t:1 asynq:{q}:t:1 px 1": "set n:asynq:{q}:t:1 asynq:{q}:t:1 px 1",
		"hset a f railtoken:x":                 "hset n:a f railtoken:x",
		"mget a b c":                           "mget n:a n:b n:c",
		"mset a 1 b 2":                         "mset n:a 1 n:b 2",
		"rpoplpush a b":                        "rpoplpush n:a n:b",
		"blmove a b right right 5":             "blmove n:a n:b right right 5",
		"zunionstore d 2 a b weights 1 2":      "zunionstore n:d 2 n:a n:b weights 1 2",
		"zunion 2 a b withscores":              "zunion 2 n:a n:b withscores",
		"evalsha 00 2 a b c d":                 "evalsha " + nowhere + " 2 n:a n:b c d",
		"evalsha 00 0 c":                       "evalsha " + nowhere + " 0 c",
		"scan 0":                               "scan 0 match n:*",
		"scan 0 count 9 MATCH a*":              "scan 0 count 9 MATCH n:a*",
		"keys a*":                              "keys n:a*",
		"publish asynq:cancel asynq:x":         "publish n:asynq:cancel asynq:x",
		"psubscribe a* b*":                     "psubscribe n:a* n:b*",
		"cluster keyslot a":                    "cluster keyslot n:a",
		"cluster slots":                        "cluster slots",
		"memory usage a":                       "memory usage n:a",
		"memory doctor":                        "memory doctor",
		"acl dryrun u get a":                   "acl dryrun u get n:a",
		"acl whoami":                           "acl whoami",
		"script exists 00":                     "script exists " + nowhere,
	} {
		w := &wire{}
		c, _ := Namespace{"n", true}.on(w)
		for _, each := range strings.SplitAfter(resp(command)+resp(command), "") { // a byte at a time
			if n, err := c.Write([]byte(each)); n != 1 || err != nil {
				t.Fatalf("%s: %d, %v", command, n, err)
			}
		}
		if got := w.sent.String(); got != resp(want)+resp(want) {
			t.Errorf("%s is sent as %q, want %q", command, got, resp(want))
		}
	}
}

func TestCommandsWhoseNamesAreNotKnownAreNotSent(t *testing.T) {
	t.Parallel()
	for _, command := range []string{
		"flushdb", "FLUSHALL", "blpop a 0", "xread streams a 0", "fcall f 1 a", "sort a by w_*", "nonsense a", "pubsub channels", "acl dryrun u eval x 1 a",
		"eval x 9 a", "migrate h 1 a 0 1",
	} {
		w := &wire{}
		c, _ := Namespace{"n", true}.on(w)
		if _, err := c.Write([]byte(resp(command))); err != nil {
			t.Fatal(err)
		}
		name, _, _ := strings.Cut(strings.ToLower(command), " ")
		if got := w.sent.String(); !strings.HasPrefix(got, "*1\r\n") || !strings.Contains(got, "\r\n"+name+" (its keys are not known") {
			t.Errorf("%s is sent as %q", command, got)
		}
	}
}

func TestNamesInRepliesLoseThePrefix(t *testing.T) {
	t.Parallel()
	list := func(items ...string) string { return resp(strings.Join(items, " ")) }
	for name, tt := range map[string]struct{ sent, reply, want string }{
		"a value is left alone": {resp("get a"), list("n:a"), list("n:a")},
		"a page of a scan": {
			resp("get a") + resp("scan 0") + resp("get b"),
			"$3\r\nn:a\r\n*2\r\n$1\r\n7\r\n" + list("n:a", "x") + "$3\r\nn:b\r\n",
			"$3\r\nn:a\r\n*2\r\n$1\r\n7\r\n" + list("a", "x") + "$3\r\nn:b\r\n",
		},
		"an error is a reply":    {resp("get a") + resp("keys *"), "-ERR n:a\r\n" + list("n:a"), "-ERR n:a\r\n" + list("a")},
		"a push is none":         {resp("get a") + resp("keys *"), ">1\r\n$1\r\nx\r\n_\r\n~1\r\n$3\r\nn:a\r\n", ">1\r\n$1\r\nx\r\n_\r\n~1\r\n$1\r\na\r\n"},
		"a missing value is one": {resp("get a") + resp("keys *"), "$-1\r\n*0\r\n", "$-1\r\n*0\r\n"},
		"a message":              {resp("subscribe a"), list("subscribe", "n:a", "1") + list("message", "n:a", "n:a"), list("subscribe", "a", "1") + list("message", "a", "n:a")},
		"a message of a pattern": {resp("psubscribe a"), ">4\r\n" + list("pmessage", "n:a*", "n:ab", "n:a")[4:], ">4\r\n" + list("pmessage", "a*", "ab", "n:a")[4:]},
		"the answer to a ping":   {resp("subscribe a"), list("pong", "n:a") + "+PONG\r\n", list("pong", "n:a") + "+PONG\r\n"},
	} {
		for _, size := range []int{1, 3, 4096} {
			w := &wire{reply: &slow{strings.NewReader(tt.reply), size}}
			c, _ := Namespace{"n", true}.on(w)
			if _, err := c.Write([]byte(tt.sent)); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(c)
			if string(got) != tt.want || err != nil {
				t.Errorf("%s, %d bytes at a time: %q, %v; want %q", name, size, got, err, tt.want)
			}
		}
	}
}

// slow reads a few bytes at a time.
type slow struct {
	io.Reader

	size int
}

func (s *slow) Read(p []byte) (int, error) { return s.Reader.Read(p[:min(len(p), s.size)]) }
