package doctor

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// firstAnswer is how long a server may take to answer at all.
	firstAnswer = 2 * time.Second
	// plainAnswer is how long it may take on a connection that is not a client's.
	plainAnswer = 500 * time.Millisecond
)

// gatherAnswer asks whether the server answers, and if not, why. It also makes the connection.
func (s *Server) gatherAnswer(ctx context.Context, client *redis.Client) {
	asking, cancel := context.WithTimeout(ctx, firstAnswer)
	defer cancel()
	if s.Err = client.WithTimeout(firstAnswer).Ping(asking).Err(); s.Err == nil || isDial(s.Err) {
		return
	}
	if _, told := errors.AsType[redis.Error](s.Err); told {
		return
	}
	// A client does not tell these apart: Redis closes connections that are too many, or not encrypted, and waits for more of
	// those that are encrypted and should not be.
	o := client.Options()
	if o.TLSConfig != nil {
		text := plainly(ctx, o, "PING\r\n")
		s.SpeaksPlain = strings.HasPrefix(text, "+PONG") || strings.HasPrefix(text, "-")
		return
	}
	if text := plainly(ctx, o, ""); strings.HasPrefix(text, "-") {
		s.Err = fmt.Errorf("%w: %s", s.Err, text)
		return
	}
	conn, err := dial(ctx, o)
	if err != nil {
		return
	}
	defer conn.Close()
	// Nothing is sent on this connection, so it does not matter to whom it leads.
	s.SpeaksTLS = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx) == nil //nolint:gosec // see above
}

// plainly returns the first line of what a server answers on a connection without encryption; empty for nothing.
func plainly(ctx context.Context, o *redis.Options, question string) string {
	conn, err := dial(ctx, o)
	if err != nil {
		return ""
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(question)); err != nil {
		return ""
	}
	text, _ := bufio.NewReader(conn).ReadString('\n') // as much as comes in time
	return strings.TrimSpace(text)
}

// dial connects to a server without encryption.
func dial(ctx context.Context, o *redis.Options) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: plainAnswer}).DialContext(ctx, o.Network, o.Addr)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(plainAnswer)); err != nil {
		_ = conn.Close() // its error says no more
		return nil, err
	}
	return conn, nil
}
