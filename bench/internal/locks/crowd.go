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

// ChildArgument is the first argument of a run of the program that must call [Serve]: another run wants callers in
// several processes.
const ChildArgument = "locks-child"

// request asks a process to let callers contend for keys. No name means callers without a lock: the ideal.
type request struct {
	Name    string
	Five    bool // the contestant for five servers is meant
	Addrs   []string
	Keys    []string
	Callers int
	Window  measure.Window
}

// crowd are the processes that callers live in, children of this one.
type crowd []*child

func newCrowd(processes int) (c crowd, err error) {
	for range processes {
		p, err := startChild()
		if err != nil {
			c.end()
			return nil, err
		}
		c = append(c, p)
	}
	return c, nil
}

func (c crowd) end() {
	for _, p := range c {
		_ = errors.Join(p.in.Close(), p.cmd.Wait())
	}
}

// contend lets the callers of all processes contend. The ideal needs only as many callers as there are keys.
func (c crowd) contend(r request) (total measure.Contention, err error) {
	asked := c[:min(len(c), r.Callers)]
	r.Callers /= len(asked)
	for _, p := range asked {
		if err := p.requests.Encode(r); err != nil {
			return total, err
		}
	}
	for _, p := range asked {
		var answer measure.Contention
		if err := p.answers.Decode(&answer); err != nil {
			return total, fmt.Errorf("a child has ended: %w", err)
		}
		total.Add(answer)
	}
	return total, nil
}

// child is another process of this program. It ends with its input.
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
	return &child{cmd: cmd, in: in, requests: json.NewEncoder(in), answers: json.NewDecoder(out)}, cmd.Start()
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
type lockers map[string]*contestant.Locker

func (l lockers) contend(ctx context.Context, r request) (measure.Contention, error) {
	do := func(_ context.Context, _ int, hold func()) error {
		hold()
		return nil
	}
	if r.Name != "" {
		locks, err := l.open(r)
		if err != nil {
			return measure.Contention{}, fmt.Errorf("%s: %w", r.Name, err)
		}
		do = func(ctx context.Context, key int, hold func()) error { return locks.Do(ctx, r.Keys[key], hold) }
	}
	return measure.Contend(ctx, r.Window, r.Callers, len(r.Keys), do), nil
}

func (l lockers) open(r request) (locks *contestant.Locker, err error) {
	if l[r.Name] == nil {
		kind, err := contestant.Named(contendedKinds(r.Five), r.Name)
		if err == nil {
			locks, err = kind.Open(r.Addrs)
		}
		if err != nil {
			return nil, err
		}
		l[r.Name] = locks
	}
	return l[r.Name], nil
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
