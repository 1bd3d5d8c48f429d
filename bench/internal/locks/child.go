package locks

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

// ChildArgument is the first argument of a run of the program that is to call [Serve]: another run wants callers in several processes.
const ChildArgument = "locks-child"

// request asks a child to let callers contend for keys. No name means callers without a lock: the ideal.
type request struct {
	Name    string
	Five    bool // the contestant for five servers is meant
	Addrs   []string
	Keys    []string
	Callers int
	Window  measure.Window
}

// Serve answers the requests that come on in, one after another, until it ends.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
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

// lockers are the contestants for contended keys that are set up in a process.
type lockers map[string]contestant.Locker

func (l lockers) contend(ctx context.Context, r request) (measure.Contention, error) {
	if r.Name == "" {
		return measure.Contend(ctx, r.Window, r.Callers, len(r.Keys), func(_ context.Context, _ int, hold func()) error {
			hold()
			return nil
		}), nil
	}
	locks := l[r.Name]
	if locks == nil {
		kind, ok := contestant.Named(contendedKinds(r.Five), r.Name)
		if !ok {
			return measure.Contention{}, fmt.Errorf("no contestant is called %q", r.Name)
		}
		var err error
		if locks, err = kind.Open(r.Addrs); err != nil {
			return measure.Contention{}, fmt.Errorf("%s: %w", r.Name, err)
		}
		l[r.Name] = locks
	}
	return measure.Contend(ctx, r.Window, r.Callers, len(r.Keys), func(ctx context.Context, key int, hold func()) error {
		return locks.Do(ctx, r.Keys[key], hold)
	}), nil
}

func contendedKinds(five bool) []contestant.Kind {
	if five {
		return contestant.ContendedFiveNodes
	}
	return contestant.Contended
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
	cmd := exec.Command(program, ChildArgument) //nolint:noctx // it ends with its input
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
