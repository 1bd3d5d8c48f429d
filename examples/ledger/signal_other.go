//go:build !unix

package main

import (
	"errors"
	"os"
)

var errNoSignals = errors.New("ledger stops processes by SIGSTOP, which this system lacks: run it on Linux or macOS")

func halt(*os.Process) error   { return errNoSignals }
func resume(*os.Process) error { return errNoSignals }
