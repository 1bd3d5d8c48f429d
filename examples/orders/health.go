package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/railtoken/railtoken/worker"
)

// askTimeout is how long -health waits for an answer.
const askTimeout = 4 * time.Second

// serveHealth answers probes for a worker at an address, /readyz and /livez, and serves its metrics at /metrics. stop ends it.
func serveHealth(ctx context.Context, addr string, w *worker.Worker, metrics http.Handler) (stop func(), err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("orders: listen for probes: %w: give another address with -listen", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/readyz", w.Ready())
	mux.Handle("/livez", w.Live())
	mux.Handle("/metrics", metrics)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: askTimeout}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener) // until stop closes it
	}()
	return func() {
		_ = server.Close()
		<-ended
	}, nil
}

// askHealth asks for the health of a worker at a URL, as the healthcheck of a container does.
func askHealth(ctx context.Context, url string, out io.Writer) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return exitUsage, fmt.Errorf("orders: -health: %w", err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // no proxy of the environment
	answer, err := client.Do(request)
	if err != nil {
		return exitWrong, fmt.Errorf("orders: -health: %w", err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 4096))
	if err != nil {
		return exitWrong, fmt.Errorf("orders: -health: %w", err)
	}
	fmt.Fprintln(out, strings.TrimSpace(string(body)))
	if answer.StatusCode != http.StatusOK {
		return exitWrong, nil
	}
	return exitOK, nil
}
