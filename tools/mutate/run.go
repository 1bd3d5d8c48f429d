package main

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

// outcome is what the tests say of a mutant.
type outcome string

// The outcomes. An unreached mutant is one that no test reaches; it is alive, too.
const (
	alive     outcome = "alive"
	unreached outcome = "not reached"
	killed    outcome = "killed"
	timedOut  outcome = "timed out"
)

// failedTest finds the name of the first failed test.
var failedTest = regexp.MustCompile(`(?m)^--- FAIL: ([^ /]+)`)

// run runs tests until the first fails or the time is over, and returns the outcome and the name of the failed test if it has one.
func (s *suite) run(ctx context.Context, tests []*test, limit time.Duration, env []string) (outcome, string) {
	names := make([]string, len(tests))
	for i, t := range tests {
		names[i] = regexp.QuoteMeta(t.name)
	}
	args := append(slices.Clone(s.flags), "-test.failfast", "-test.count=1", "-test.parallel=6", "-test.timeout="+limit.String(), "-test.run=^("+strings.Join(names, "|")+")$")
	ctx, cancel := context.WithTimeout(ctx, limit+5*time.Second)
	defer cancel()
	cmd := s.command(ctx, args...)
	cmd.Env = append(cmd.Environ(), env...)
	var out bytes.Buffer
	cmd.Stdout = &capped{Buffer: &out}
	cmd.Stderr = cmd.Stdout
	err := cmd.Run()
	switch {
	case err == nil || errors.Is(err, exec.ErrWaitDelay) && cmd.ProcessState.Success():
		return alive, ""
	case ctx.Err() != nil || bytes.Contains(out.Bytes(), []byte("panic: test timed out after")):
		return timedOut, ""
	}
	if found := failedTest.FindSubmatch(out.Bytes()); found != nil {
		return killed, string(found[1])
	}
	return killed, ""
}

// capped keeps the first and the last quarter of a megabyte.
type capped struct{ *bytes.Buffer }

func (c *capped) Write(p []byte) (int, error) {
	const part = 1 << 18
	if c.Len()+len(p) > 3*part && c.Len() > 2*part {
		text := c.Bytes()
		kept := append(slices.Clone(text[:part]), text[len(text)-part:]...)
		c.Reset()
		c.Buffer.Write(kept)
	}
	return c.Buffer.Write(p)
}

// try runs the tests that may notice a mutant: first those that have killed most others in least time, then the quickest. They run in
// batches, which take longer and longer.
func (s *suite) try(ctx context.Context, id int, env []string) outcome {
	var tests []*test
	for _, t := range s.tests {
		if t.reach == nil || t.reach[id] {
			tests = append(tests, t)
		}
	}
	if len(tests) == 0 {
		return unreached
	}
	slices.SortStableFunc(tests, func(a, b *test) int { return b.worth() - a.worth() })
	left := s.patience
	for room := 500 * time.Millisecond; len(tests) > 0 && left > 0; room *= 4 {
		n, sum := 1, tests[0].took
		for n < len(tests) && sum+tests[n].took <= min(room, left) {
			sum += tests[n].took
			n++
		}
		left -= sum
		result := s.judge(ctx, tests[:n], env)
		if result != alive {
			return result
		}
		tests = tests[n:]
	}
	return alive
}

// judge runs some tests at once. One that fails must fail alone, too, since beside others it may fail for want of time. If it does not,
// the others are run that it may have kept from running.
func (s *suite) judge(ctx context.Context, tests []*test, env []string) outcome {
	for left := slices.Clone(tests); len(left) > 0; {
		var sum time.Duration
		for _, t := range left {
			sum += t.took
		}
		result, name := s.run(ctx, left, limit(sum), env)
		i := slices.IndexFunc(left, func(t *test) bool { return t.name == name })
		if i < 0 {
			if result == timedOut {
				result = s.confirm(ctx, left, env)
			}
			return result
		}
		result, _ = s.run(ctx, left[i:i+1], limit(left[i].took), env)
		if result == timedOut {
			result = s.confirm(ctx, left[i:i+1], env)
		}
		if result != alive {
			left[i].killed++
			return result
		}
		left = slices.Delete(left, i, i+1)
	}
	return alive
}

// confirm tries tests again that have not ended in time, with four times what they take now without a mutant: the machine may be busy.
func (s *suite) confirm(ctx context.Context, tests []*test, env []string) outcome {
	began := time.Now()
	if usual, _ := s.run(ctx, tests, 3*time.Minute, nil); usual != alive {
		return alive // these tests say nothing for now
	}
	result, _ := s.run(ctx, tests, limit(0)+4*time.Since(began), env)
	return result
}

// limit returns how long tests may take that usually take a while: the machine may be busy.
func limit(took time.Duration) time.Duration { return 8*time.Second + 8*took }

// worth returns how early a test should come: more for one that has killed many mutants in little time.
func (t *test) worth() int {
	return int(float64(t.killed) / (t.took.Seconds() + 0.05))
}
