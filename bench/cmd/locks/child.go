package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/railtoken/railtoken/bench/internal/contestant"
	"github.com/railtoken/railtoken/bench/internal/measure"
)

// childArgument makes the program serve another run of it, which wants callers in several processes.
const childArgument = "child"

// request asks a child to let callers contend. No name means one caller without a lock: the ideal.
type request struct {
	Name    string
	Addrs   []string
	Key     string
	Callers int
	Window  measure.Window
}

// serve answers the requests that come on in, one after another, until it ends.
func serve(ctx context.Context, in io.Reader, out io.Writer) error {
	open := lockers{}
	defer open.close()
	requests, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var r request
		if err := requests.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		answer, err := open.contend(ctx, r)
		if err != nil {
			return err
		}
		if err := answers.Encode(answer); err != nil {
			return err
		}
	}
}

// lockers are the contestants for one contended key that are set up in a process.
type lockers map[string]contestant.Locker

func (l lockers) contend(ctx context.Context, r request) (measure.Contention, error) {
	if r.Name == "" {
		return measure.Contend(ctx, r.Window, r.Callers, func(_ context.Context, hold func()) error {
			hold()
			return nil
		}), nil
	}
	locks := l[r.Name]
	if locks == nil {
		kind, ok := contestant.Named(contestant.Contended, r.Name)
		if !ok {
			return measure.Contention{}, fmt.Errorf("no contestant is called %q", r.Name)
		}
		var err error
		if locks, err = kind.Open(r.Addrs); err != nil {
			return measure.Contention{}, fmt.Errorf("%s: %w", r.Name, err)
		}
		l[r.Name] = locks
	}
	return measure.Contend(ctx, r.Window, r.Callers, func(ctx context.Context, hold func()) error {
		return locks.Do(ctx, r.Key, hold)
	}), nil
}

func (l lockers) close() {
	for _, locks := range l {
		_ = locks.Close()
	}
}

// child is another process of this program.
type child struct {
	cmd      *exec.Cmd
	in       io.WriteCloser
	requests *json.Encoder
	answers  *json.Decoder
}

func startChild() (*child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, childArgument) //nolint:noctx // it ends with its input
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &child{cmd: cmd, in: in, requests: json.NewEncoder(in), answers: json.NewDecoder(out)}, nil
}

func (c *child) ask(r request) error { return c.requests.Encode(r) }

func (c *child) answer() (answer measure.Contention, err error) {
	err = c.answers.Decode(&answer)
	return answer, err
}

// end closes the child's input and waits for it.
func (c *child) end() error {
	return errors.Join(c.in.Close(), c.cmd.Wait())
}
