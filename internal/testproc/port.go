package testproc

import (
	"context"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// Loopback is the address on which servers listen.
const Loopback = "127.0.0.1"

// The ports tried for a server. They and the ports 10000 above lie below the range from which Linux and macOS take the
// local ports of outgoing connections: otherwise a client that dials a killed server could be given the server's own
// port, and the server could not come back on it.
const (
	portMin = 11000
	portMax = 20999
)

// FreePort returns a port on which nothing listened a moment ago, nor on the ports that lie above it by the offsets.
func FreePort(tb testing.TB, offsets ...int) int {
	tb.Helper()
	for range 1000 {
		port := portMin + rand.IntN(portMax-portMin+1)
		free := isFree(tb.Context(), port)
		for _, offset := range offsets {
			free = free && isFree(tb.Context(), port+offset)
		}
		if free {
			return port
		}
	}
	tb.Fatalf("testproc: no free port in %d-%d", portMin, portMax)
	return 0
}

func isFree(ctx context.Context, port int) bool {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(Loopback, strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
