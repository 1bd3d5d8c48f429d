package server_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/internal/testing/leaktest"
)

const (
	oneWay  = time.Millisecond
	atMost  = 10 * time.Second // of everything here
	someKiB = 300
)

func TestMain(m *testing.M) { leaktest.Verify(m) }

func TestARoundTripTakesTwiceTheDistance(t *testing.T) {
	t.Parallel()
	conn := dial(t, listen(t, echo(t)))
	buf := make([]byte, 1)
	for range 20 {
		began := time.Now()
		if _, err := conn.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, buf); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 2*oneWay {
			t.Fatalf("a round trip took %v", took)
		}
	}
}

func TestAllBytesArriveInOrderBeforeTheEnd(t *testing.T) {
	t.Parallel()
	conn := dial(t, listen(t, echo(t)))
	data := make([]byte, someKiB<<10)
	random := rand.NewChaCha8([32]byte{1})
	if _, err := random.Read(data); err != nil {
		t.Fatal(err)
	}
	sent := make(chan error, 1)
	go func() {
		for rest := data; len(rest) > 0; {
			n := min(1+int(random.Uint64()%5000), len(rest))
			if _, err := conn.Write(rest[:n]); err != nil {
				sent <- err
				return
			}
			rest = rest[n:]
		}
		sent <- conn.CloseWrite()
	}()
	got, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, data) {
		t.Errorf("%d bytes came back of %d, or others", len(got), len(data))
	}
}

func TestCloseEndsConnectionsThatAreOpen(t *testing.T) {
	t.Parallel()
	proxy := listen(t, echo(t))
	conn := dial(t, proxy)
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := proxy.Close(); err != nil {
		t.Fatal(err)
	}
	var late net.Error
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.As(err, &late) && late.Timeout() {
		t.Errorf("after Close a read has %v", err)
	}
	if c, err := new(net.Dialer).DialContext(t.Context(), "tcp", proxy.Addr()); err == nil {
		_ = c.Close()
		t.Error("it still listens")
	}
}

func TestACutLastsUntilItIsMended(t *testing.T) {
	t.Parallel()
	proxy := listen(t, echo(t))
	proxy.Mend() // there is nothing to mend
	exchange := func(conn *net.TCPConn) error {
		if _, err := conn.Write([]byte("x")); err != nil {
			return err
		}
		_, err := io.ReadFull(conn, make([]byte, 1))
		return err
	}
	conn := dial(t, proxy)
	if err := exchange(conn); err != nil {
		t.Fatal(err)
	}
	proxy.Cut()
	var late net.Error
	for _, one := range []*net.TCPConn{conn, dial(t, proxy)} {
		if err := exchange(one); err == nil || errors.As(err, &late) && late.Timeout() {
			t.Errorf("during the cut: %v", err)
		}
	}
	proxy.Mend()
	if err := exchange(dial(t, proxy)); err != nil {
		t.Errorf("after the cut: %v", err)
	}
}

func listen(t *testing.T, target string) *server.Proxy {
	t.Helper()
	p, err := server.StartProxy(t.Context(), target, oneWay)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func dial(t *testing.T, p *server.Proxy) *net.TCPConn {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(atMost)); err != nil {
		t.Fatal(err)
	}
	conn, ok := c.(*net.TCPConn)
	if !ok {
		t.Fatalf("%T", c)
	}
	return conn
}

func listener(t *testing.T) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// echo answers each connection with what it says.
func echo(t *testing.T) (addr string) {
	t.Helper()
	l := listener(t)
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
				if tcp, ok := conn.(*net.TCPConn); ok {
					_ = tcp.CloseWrite()
				}
			}()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-served
	})
	return l.Addr().String()
}
