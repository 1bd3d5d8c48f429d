package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// pinTries bounds the looks at the threads of a process, which may start others meanwhile.
const pinTries = 20

// Cores returns the cores on which this process may run.
func Cores() (cores []int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("the cores of this process: %w", err)
	}
	for core := 0; len(cores) < set.Count(); core++ {
		if set.IsSet(core) {
			cores = append(cores, core)
		}
	}
	return cores, nil
}

// Pin lets a process run on these cores alone, with all threads that it has and will start. An ID of 0 is this process.
func Pin(pid int, cores ...int) error {
	if pid == 0 {
		pid = os.Getpid()
	}
	var set unix.CPUSet
	for _, core := range cores {
		set.Set(core)
	}
	// A thread inherits the cores of the one that starts it. So once a look finds no thread that is new, none will be.
	var pinned []int
	for range pinTries {
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			return fmt.Errorf("the threads of process %d: %w", pid, err)
		}
		before := len(pinned)
		for _, thread := range threads {
			id, err := strconv.Atoi(thread.Name())
			if err == nil && !slices.Contains(pinned, id) {
				err = pinThread(id, &set)
				pinned = append(pinned, id)
			}
			if err != nil {
				return fmt.Errorf("pin process %d to the cores %v: %w", pid, cores, err)
			}
		}
		if len(pinned) == before {
			return nil
		}
	}
	return fmt.Errorf("process %d starts threads without end", pid)
}

// pinThread pins a thread, unless that has ended.
func pinThread(id int, set *unix.CPUSet) error {
	err := unix.SchedSetaffinity(id, set)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
