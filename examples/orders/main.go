// Command orders runs two types of tasks that must never touch the same order at the same time. It reports whether they did:
// overlaps, lost updates, lost tasks, and a timeline that shows which task held which key.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// Exit statuses.
const (
	exitOK          = 0
	exitWrong       = 1 // an overlap, a lost update, a double effect, a lost task, or the run failed
	exitUsage       = 2
	exitInterrupted = 130 // 128 + SIGINT, as shells have it
)

func main() {
	redis.SetLogger(quiet{})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	os.Exit(command(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// quiet keeps go-redis from writing to stderr each time a connection fails. The caller of go-redis reports the error.
type quiet struct{}

// Printf does nothing.
func (quiet) Printf(context.Context, string, ...any) {}

// command runs the program and returns its exit status.
func command(ctx context.Context, args []string, out, errOut io.Writer) int {
	o, err := parseOptions(args, errOut)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintln(errOut, err)
		return exitUsage
	}
	p := &program{options: o, out: out, errOut: errOut}
	defer p.close()
	status, err := p.run(ctx)
	if err != nil {
		fmt.Fprintln(errOut, err)
		status = exitWrong
	}
	return status
}
