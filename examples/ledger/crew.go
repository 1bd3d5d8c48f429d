package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// crew is the worker processes of a run.
type crew struct {
	job    []byte
	events chan event
	last   int
	member map[int]*process
}

// event is a message of a worker, or its end.
type event struct {
	worker int
	message
	over bool
}

// process is a worker process.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	stderr *bytes.Buffer
	moving *transfer // what its handler works on
	killed bool
}

func newCrew(j job) (*crew, error) {
	text, err := json.Marshal(j)
	return &crew{job: text, events: make(chan event), member: map[int]*process{}}, err
}

// start starts a worker.
func (c *crew) start() error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	p := &process{cmd: exec.Command(exe), stderr: &bytes.Buffer{}} //nolint:noctx // stop ends it
	p.cmd.Env = append(os.Environ(), workerVariable+"="+string(c.job))
	p.cmd.Stderr = p.stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	c.last++
	id := c.last
	c.member[id] = p
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			e := event{worker: id}
			if json.Unmarshal(lines.Bytes(), &e.message) == nil {
				c.events <- e
			}
		}
		_ = p.cmd.Wait() // a killed one has failed
		c.events <- event{worker: id, over: true}
	}()
	return nil
}

// do does what the director has decided.
func (c *crew) do(a action) error {
	p := c.member[a.worker]
	if p == nil {
		return nil // it ended meanwhile
	}
	switch a.do {
	case answer:
		_, _ = io.WriteString(p.in, "\n") // its end is an event
		return nil
	case pause:
		return halt(p.cmd.Process)
	case wake:
		_, _ = io.WriteString(p.in, "\n") // before it can read
		return resume(p.cmd.Process)
	case kill:
		p.killed = true
		return p.cmd.Process.Kill()
	default:
		return fmt.Errorf("there is no deed %q", a.do)
	}
}

// leave forgets a worker that has ended. The error says why, unless it was killed.
func (c *crew) leave(id int) (*process, error) {
	p := c.member[id]
	delete(c.member, id)
	if !p.killed {
		return p, fmt.Errorf("worker %d ended by itself: %v: %s", id, p.cmd.ProcessState, strings.TrimSpace(p.stderr.String()))
	}
	return p, nil
}

// stop ends all workers in order, and after a while or on a failure by force.
func (c *crew) stop(failed bool) (err error) {
	for _, p := range c.member {
		_ = p.in.Close()
		_ = resume(p.cmd.Process)
		if failed {
			_ = p.cmd.Process.Kill()
		}
	}
	timeout := time.After(15 * time.Second)
	for len(c.member) > 0 {
		select {
		case e := <-c.events:
			if e.over {
				p := c.member[e.worker]
				delete(c.member, e.worker)
				if !failed && !p.killed && !p.cmd.ProcessState.Success() {
					err = errors.Join(err, fmt.Errorf("worker %d: %v: %s", e.worker, p.cmd.ProcessState, strings.TrimSpace(p.stderr.String())))
				}
			}
		case <-timeout:
			for id, p := range c.member {
				err = errors.Join(err, fmt.Errorf("worker %d did not end within 15 s", id))
				p.killed = true
				_ = p.cmd.Process.Kill()
			}
		}
	}
	return err
}
