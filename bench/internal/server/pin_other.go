//go:build !linux

package server

import "errors"

var errNoPins = errors.New("only Linux lets a program choose the cores of a process")

// Cores returns the cores on which this process may run.
func Cores() ([]int, error) { return nil, errNoPins }

// Pin lets a process run on these cores alone.
func Pin(int, ...int) error { return errNoPins }
