package process

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
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
func FreePort(ctx context.Context, offsets ...int) (int, error) {
	for range 1000 {
		port := portMin + rand.IntN(portMax-portMin+1)
		free := isFree(ctx, port)
		for _, offset := range offsets {
			free = free && isFree(ctx, port+offset)
		}
		if free {
			return port, nil
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
	}
	return 0, errNoPort
}

// FreeAddrs returns n different loopback addresses on which nothing listened a moment ago.
func FreeAddrs(ctx context.Context, n int) ([]string, error) {
	var addrs []string
	for range 1000 {
		if len(addrs) == n {
			return addrs, nil
		}
		port, err := FreePort(ctx)
		if err != nil {
			return nil, err
		}
		if addr := address(port); !slices.Contains(addrs, addr) {
			addrs = append(addrs, addr)
		}
	}
	return nil, errNoPort
}

var errNoPort = fmt.Errorf("process: no free port in %d-%d", portMin, portMax)

func isFree(ctx context.Context, port int) bool {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address(port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

func address(port int) string { return net.JoinHostPort(Loopback, strconv.Itoa(port)) }
