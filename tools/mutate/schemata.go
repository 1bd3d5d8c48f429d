package main

// helper is compiled into a mutated package. It holds what the mutants in its sources call: each is off unless the environment
// variable MUTANT has its number. With MUTANT_REACHED, the numbers of the mutants that a run reaches are appended to that file.
//
// So one binary holds all mutants of a package, and each costs no more than a run.
const helper = `

import (
	"cmp"
	"os"
	"strconv"
	"sync"
	"time"
)

var mutationActive, mutationReached, mutationSeen = func() (int, *os.File, *sync.Map) {
	active, _ := strconv.Atoi(os.Getenv("MUTANT"))
	path := os.Getenv("MUTANT_REACHED")
	if path == "" {
		return active, nil, nil
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	return active, file, new(sync.Map)
}()

func mutation(n int) bool {
	if mutationSeen != nil {
		if _, seen := mutationSeen.LoadOrStore(n, true); !seen {
			mutationReached.WriteString(strconv.Itoa(n) + "\n")
		}
	}
	return n == mutationActive
}

type mutationDuration = time.Duration

type mutationNumbers interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr | ~float32 | ~float64
}

func mutationLess[T cmp.Ordered](n int, a, b T) bool {
	if mutation(n) {
		return a <= b
	}
	return a < b
}

func mutationAtMost[T cmp.Ordered](n int, a, b T) bool {
	if mutation(n) {
		return a < b
	}
	return a <= b
}

func mutationMore[T cmp.Ordered](n int, a, b T) bool {
	if mutation(n) {
		return a >= b
	}
	return a > b
}

func mutationAtLeast[T cmp.Ordered](n int, a, b T) bool {
	if mutation(n) {
		return a > b
	}
	return a >= b
}

func mutationAdd[T mutationNumbers](n int, a, b T) T {
	if mutation(n) {
		return a - b
	}
	return a + b
}

func mutationSubtract[T mutationNumbers](n int, a, b T) T {
	if mutation(n) {
		return a + b
	}
	return a - b
}

func mutationMultiply[T mutationNumbers](n int, a, b T) T {
	if mutation(n) {
		return a / b
	}
	return a * b
}

func mutationDivide[T mutationNumbers](n int, a, b T) T {
	if mutation(n) {
		return a * b
	}
	return a / b
}

func mutationMax[T cmp.Ordered](n int, a T, more ...T) T {
	for _, b := range more {
		if mutation(n) {
			a = min(a, b)
		} else {
			a = max(a, b)
		}
	}
	return a
}

func mutationMin[T cmp.Ordered](n int, a T, more ...T) T {
	for _, b := range more {
		if mutation(n) {
			a = max(a, b)
		} else {
			a = min(a, b)
		}
	}
	return a
}

func mutationPlusOne[T mutationNumbers](n int, a T) T {
	if mutation(n) {
		return a + 1
	}
	return a
}

func mutationMinusOne[T mutationNumbers](n int, a T) T {
	if mutation(n) {
		return a - 1
	}
	return a
}

func mutationHalf(n int, a time.Duration) time.Duration {
	if mutation(n) {
		return a / 2
	}
	return a
}

func mutationNil(n int, err error) error {
	if mutation(n) {
		return nil
	}
	return err
}
`
