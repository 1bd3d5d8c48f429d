package process

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"syscall"
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

// reserved holds the UDP socket of each reserved port. Servers listen on TCP, so the socket is in nobody's way; the
// system closes it when this process ends, however it ends.
var reserved struct {
	sync.Mutex

	sockets []net.PacketConn
}

// FreePort reserves a port on which nothing listens, nor on the ports that lie above it by the offsets. No other call of
// FreePort, in this process or another, returns the port before this process ends: a server that was killed can always
// come back on its port.
func FreePort(ctx context.Context, offsets ...int) (int, error) {
	for range 1000 {
		port := portMin + rand.IntN(portMax-portMin+1)
		socket, err := new(net.ListenConfig).ListenPacket(ctx, "udp", address(port))
		if err == nil {
			if isFree(ctx, port, offsets) {
				keep(socket)
				return port, nil
			}
			_ = socket.Close()
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("process: no free port in %d-%d", portMin, portMax)
}

func keep(socket net.PacketConn) {
	reserved.Lock()
	defer reserved.Unlock()
	reserved.sockets = append(reserved.sockets, socket)
}

// FreeAddrs reserves n loopback addresses as FreePort reserves a port.
func FreeAddrs(ctx context.Context, n int) ([]string, error) {
	addrs := make([]string, n)
	for i := range addrs {
		port, err := FreePort(ctx)
		if err != nil {
			return nil, err
		}
		addrs[i] = address(port)
	}
	return addrs, nil
}

// isFree reports whether nothing listens on the port, nor above it by the offsets. It dials and does not listen: a process
// that is just being started would inherit the listening socket, and the port would stay taken until that process has
// become its program.
func isFree(ctx context.Context, port int, offsets []int) bool {
	for _, offset := range append([]int{0}, offsets...) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address(port+offset))
		if err == nil {
			_ = conn.Close()
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return false
		}
	}
	return true
}

func address(port int) string { return net.JoinHostPort(Loopback, strconv.Itoa(port)) }
