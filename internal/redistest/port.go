package redistest

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

const (
	loopback = "127.0.0.1"

	// The ports tried for a server. They and their cluster bus ports (10000 above) lie below the range from which Linux
	// and macOS take the local ports of outgoing connections: otherwise a client that dials a killed server could be
	// given the server's own port, and the server could not come back on it.
	portMin = 11000
	portMax = 20999
)

// errPortTaken reports that redis-server ended because another process listens on its port.
var errPortTaken = errors.New("redistest: the port is taken")

// freePort returns a port that nobody listened on a moment ago, nor on the cluster bus port that belongs to it.
func freePort(tb testing.TB) int {
	tb.Helper()
	for range 1000 {
		port := portMin + rand.IntN(portMax-portMin+1)
		if free(tb.Context(), port) && free(tb.Context(), port+busPortOffset) {
			return port
		}
	}
	tb.Fatalf("redistest: no free port in %d-%d", portMin, portMax)
	return 0
}

func free(ctx context.Context, port int) bool {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
