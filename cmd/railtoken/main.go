// Command railtoken shows what holds each business key, which tasks wait for it and why, and steps in: it wakes, reorders,
// drops, cancels and replays tasks, and takes a key away from a holder that hangs. See docs/operations.md, "At night".
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9"
)

func main() {
	redis.SetLogger(quiet{})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// quiet keeps go-redis from writing to stderr each time a connection fails. Commands report the error.
type quiet struct{}

// Printf does nothing.
func (quiet) Printf(context.Context, string, ...any) {}
