package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/worker/embeddedredis"
)

// redisServer is a Redis of one run, empty at first.
type redisServer struct {
	addr  string
	close func()
}

// startRedis runs redis-server if it is installed, or else an embedded Redis, which is slower.
func startRedis() (redisServer, error) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		embedded, err := embeddedredis.Start()
		if err != nil {
			return redisServer{}, err
		}
		return redisServer{addr: embedded.Addr(), close: func() { _ = embedded.Close() }}, nil // never fails
	}
	for range 5 { // another program may take the free port in the meantime
		var server redisServer
		if server, err = startProgram(program); err == nil {
			return server, nil
		}
	}
	return redisServer{}, err
}

func startProgram(program string) (redisServer, error) {
	free, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a free port
	if err != nil {
		return redisServer{}, err
	}
	addr := free.Addr().String()
	_, port, err := net.SplitHostPort(addr)
	if err := errors.Join(err, free.Close()); err != nil {
		return redisServer{}, err
	}
	//nolint:noctx,gosec // close ends it
	cmd := exec.Command(program, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", os.TempDir())
	if err := cmd.Start(); err != nil {
		return redisServer{}, err
	}
	over := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(over)
	}()
	server := redisServer{addr: addr, close: func() { _ = cmd.Process.Kill(); <-over }}
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for {
		info, err := client.InfoMap(ctx, "server").Result()
		switch {
		case err == nil && info["Server"]["process_id"] == strconv.Itoa(cmd.Process.Pid):
			return server, nil
		case err == nil:
			server.close()
			return redisServer{}, fmt.Errorf("another Redis listens at %s", addr)
		}
		select {
		case <-over:
			return redisServer{}, fmt.Errorf("redis-server ended: %v", cmd.ProcessState)
		case <-ctx.Done():
			server.close()
			return redisServer{}, fmt.Errorf("redis-server does not answer: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
