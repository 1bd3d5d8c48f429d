package locks

import (
	"context"
	"errors"
	"io"
	"net/rpc"
	"os"
	"os/exec"

	"github.com/railtoken/railtoken/bench/internal/measure"
)

// ChildArgument is the first argument of a run of the program that must call [Serve]: another run wants callers in
// several processes.
const ChildArgument = "locks-child"

// Request asks a process to let callers contend for keys. No name means callers without a lock: the ideal.
type Request struct {
	Name    string
	Addrs   []string
	Keys    []string
	Callers int
	Window  measure.Window
}

// crowd are the processes that callers live in, children of this one.
type crowd []*child

// child is another process of this program. It ends with its input.
type child struct {
	*rpc.Client

	cmd *exec.Cmd
}

func newCrowd(processes int) (c crowd, err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	for range processes {
		cmd := exec.Command(program, ChildArgument) //nolint:noctx // it ends with its input
		cmd.Stderr = os.Stderr
		in, noIn := cmd.StdinPipe()
		out, noOut := cmd.StdoutPipe()
		if err := errors.Join(noIn, noOut, cmd.Start()); err != nil {
			c.end()
			return nil, err
		}
		c = append(c, &child{rpc.NewClient(pipe{out, in}), cmd})
	}
	return c, nil
}

func (c crowd) end() {
	for _, p := range c {
		_ = errors.Join(p.Close(), p.cmd.Wait())
	}
}

// contend lets the callers of all processes contend. The ideal needs only as many callers as there are keys.
func (c crowd) contend(r Request) (total measure.Sample, err error) {
	asked := c[:min(len(c), r.Callers)]
	r.Callers /= len(asked)
	samples, calls := make([]measure.Sample, len(asked)), make([]*rpc.Call, len(asked))
	for i, p := range asked {
		calls[i] = p.Go("Callers.Contend", r, &samples[i], nil)
	}
	for i, call := range calls {
		<-call.Done
		err = errors.Join(err, call.Error)
		total.Add(samples[i])
	}
	return total, err
}

// pipe is the two ways between a process and its child.
type pipe struct {
	io.Reader
	io.WriteCloser
}

// Serve answers the requests that come on in, until it ends.
func Serve(in io.Reader, out io.WriteCloser) error {
	s := rpc.NewServer()
	err := s.Register(Callers{})
	if err == nil {
		s.ServeConn(pipe{in, out})
	}
	return err
}

// Callers are the contestants for contended keys that are set up in a process.
type Callers map[string]*Locker

// Contend lets callers of this process contend. One request is answered after another.
func (c Callers) Contend(r Request, s *measure.Sample) error {
	wait := func(_ context.Context, _ string, hold func()) error {
		hold()
		return nil
	}
	for _, kind := range contendedKinds(len(r.Addrs)) {
		if kind.Name == r.Name && c[r.Name] == nil {
			var err error
			if c[r.Name], err = kind.Open(r.Addrs); err != nil {
				return err
			}
		}
	}
	if r.Name != "" {
		wait = c[r.Name].Wait
	}
	do := func(ctx context.Context, key int, hold func()) error { return wait(ctx, r.Keys[key], hold) }
	*s = measure.Contend(context.Background(), r.Window, r.Callers, len(r.Keys), do)
	return nil
}

func contendedKinds(servers int) []Kind {
	if servers > 1 {
		return ContendedFiveNodes
	}
	return Contended
}
