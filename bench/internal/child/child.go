// Package child runs this program again as another process, which serves tasks until it is told to end, or is killed.
package child

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// ready is the first line that a child says.
const ready = "ready"

// Child is another process of this program. It ends with its input, so at the latest with this process.
type Child struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
}

// Start runs the program with an argument, by which it knows that it must call [Serve], and gives it a request. It returns
// once the child is ready.
func Start(argument string, request any) (*Child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, argument) //nolint:noctx // it ends with its input
	cmd.Stderr = os.Stderr
	in, noIn := cmd.StdinPipe()
	out, noOut := cmd.StdoutPipe()
	if err := errors.Join(noIn, noOut, cmd.Start()); err != nil {
		return nil, err
	}
	c := &Child{cmd, in, bufio.NewScanner(out)}
	err = json.NewEncoder(in).Encode(request)
	if err == nil {
		var line string
		if line, err = c.Line(); err == nil && line != ready {
			err = fmt.Errorf("the child says %q", line)
		}
	}
	if err != nil {
		return nil, errors.Join(err, c.End())
	}
	return c, nil
}

// StartAll starts n children with the same request.
func StartAll(n int, argument string, request any) (all []*Child, err error) {
	for range n {
		c, err := Start(argument, request)
		if err != nil {
			return nil, errors.Join(err, EndAll(all))
		}
		all = append(all, c)
	}
	return all, nil
}

// Line waits for the next line that the child says.
func (c *Child) Line() (string, error) {
	if !c.lines.Scan() {
		return "", errors.Join(errors.New("the child has ended"), c.lines.Err())
	}
	return c.lines.Text(), nil
}

// Kill ends the child at once, as a crash would, and returns when it is gone.
func (c *Child) Kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// End lets the child end in order, and returns when it is gone.
func (c *Child) End() error { return errors.Join(c.in.Close(), c.cmd.Wait()) }

// EndAll lets all children end at the same time.
func EndAll(all []*Child) (err error) {
	for _, c := range all {
		err = errors.Join(err, c.in.Close())
	}
	for _, c := range all {
		err = errors.Join(err, c.cmd.Wait())
	}
	return err
}

// Serve reads a request from in, starts what it asks for, and stops that when in ends. say writes a line to out for
// [Child.Line]; until the child is ready, and from then on until the line is written, it waits.
func Serve[R any](in io.Reader, out io.Writer, start func(ctx context.Context, request R, say func(string)) (stop func() error, err error)) error {
	var request R
	requests := json.NewDecoder(in)
	if err := requests.Decode(&request); err != nil {
		return err
	}
	lines, started := make(chan string), make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stop, err := start(ctx, request, func(line string) {
		<-started
		select {
		case lines <- line:
		case <-ctx.Done():
		}
	})
	if err != nil {
		return err
	}
	close(started)
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, in)
		close(ended)
	}()
	_, err = fmt.Fprintln(out, ready)
	for err == nil {
		select {
		case line := <-lines:
			_, err = fmt.Fprintln(out, line)
			continue
		case <-ended:
		}
		break
	}
	cancel()
	return errors.Join(err, stop())
}
