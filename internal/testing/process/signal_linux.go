package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

const pauseTimeout = 10 * time.Second

// attributes let the kernel kill the process when this process dies without running its cleanups, as it does after a
// panic or a timeout.
func attributes(u *User) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if u != nil {
		a.Credential = &syscall.Credential{Uid: uint32(u.UID), Gid: uint32(u.GID)}
	}
	return a
}

// Interrupt asks the process to end.
func (p *Process) Interrupt() error { return p.cmd.Process.Signal(syscall.SIGTERM) }

// Pause stops the process and its children, and returns when they have stopped: the signal alone is only a request.
func (p *Process) Pause() error {
	if err := pause(p.PID(), p.exited); err != nil {
		return err
	}
	for _, child := range childrenOf(p.PID()) { // the parent has stopped, so it starts no more of them
		if err := pause(child, p.exited); err != nil && !errors.Is(err, syscall.ESRCH) && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Resume lets a paused process and its children run on.
func (p *Process) Resume() error {
	for _, child := range childrenOf(p.PID()) {
		_ = syscall.Kill(child, syscall.SIGCONT)
	}
	return p.cmd.Process.Signal(syscall.SIGCONT)
}

// KillAll ends the process and its children at once, as a crash of the machine would, and returns when they are gone.
func (p *Process) KillAll() error {
	_ = p.cmd.Process.Signal(syscall.SIGSTOP)
	children := childrenOf(p.PID())
	p.Kill()
	for _, child := range children {
		_ = syscall.Kill(child, syscall.SIGKILL)
	}
	ctx, cancel := context.WithTimeout(context.Background(), pauseTimeout)
	defer cancel()
	return Poll(ctx, nil, func() error {
		for _, child := range children {
			if state, parent := stateOf(child); state != 0 && state != 'Z' && parent != os.Getpid() {
				return fmt.Errorf("process %d has not ended yet", child)
			}
		}
		return nil
	})
}

func pause(pid int, exited <-chan struct{}) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), pauseTimeout)
	defer cancel()
	return Poll(ctx, exited, func() error {
		if state, _ := stateOf(pid); state != 'T' && state != 'Z' && state != 0 {
			return errors.New("the process has not stopped yet")
		}
		return nil
	})
}

// childrenOf returns the IDs of the children of a process.
func childrenOf(pid int) []int {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil || len(threads) == 0 {
		return searchChildren(pid) // a kernel without CONFIG_PROC_CHILDREN
	}
	var children []int
	for _, thread := range threads {
		ids, _ := os.ReadFile(thread)
		for id := range bytes.FieldsSeq(ids) {
			if child, err := strconv.Atoi(string(id)); err == nil {
				children = append(children, child)
			}
		}
	}
	slices.Sort(children)
	return children
}

// searchChildren looks for the children of a process among all processes.
func searchChildren(pid int) []int {
	names, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	var children []int
	for _, name := range names {
		child, err := strconv.Atoi(filepath.Base(name))
		if err != nil {
			continue
		}
		if _, parent := stateOf(child); parent == pid {
			children = append(children, child)
		}
	}
	slices.Sort(children)
	return children
}

// stateOf returns the state and the parent of a process, 0 if there is no such process.
func stateOf(pid int) (state byte, parent int) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0
	}
	// The state follows the name, which is in brackets and may itself hold a bracket.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return 0, 0
	}
	parent, _ = strconv.Atoi(string(fields[1]))
	return fields[0][0], parent
}
