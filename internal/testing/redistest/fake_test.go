package redistest_test

import (
	"fmt"
	"strings"
	"testing"
)

// fakeTB is a test whose end can be looked at. Cleanups and directories are those of the test around it.
type fakeTB struct {
	testing.TB
	skipped, failed bool
	message         string
}

// outcome runs f as a test of its own and tells how it ended.
func outcome(t *testing.T, f func(testing.TB)) (tb *fakeTB) {
	t.Helper()
	tb = &fakeTB{TB: t}
	defer func() {
		if p := recover(); p != nil && p != tb {
			panic(p)
		}
	}()
	f(tb)
	return tb
}

func (f *fakeTB) Helper() {}

func (f *fakeTB) end(message string) {
	f.message = message
	panic(f)
}

func (f *fakeTB) Skip(args ...any) { f.skipped = true; f.end(fmt.Sprint(args...)) }
func (f *fakeTB) Skipf(format string, args ...any) {
	f.skipped = true
	f.end(fmt.Sprintf(format, args...))
}
func (f *fakeTB) Fatal(args ...any) { f.failed = true; f.end(fmt.Sprint(args...)) }
func (f *fakeTB) Fatalf(format string, args ...any) {
	f.failed = true
	f.end(fmt.Sprintf(format, args...))
}

func (f *fakeTB) mustFail(t *testing.T, parts ...string) {
	t.Helper()
	if !f.failed {
		t.Errorf("did not fail; skipped: %v, %q", f.skipped, f.message)
	}
	f.mustSay(t, parts...)
}

func (f *fakeTB) mustSkip(t *testing.T, parts ...string) {
	t.Helper()
	if !f.skipped {
		t.Errorf("was not skipped; failed: %v, %q", f.failed, f.message)
	}
	f.mustSay(t, parts...)
}

func (f *fakeTB) mustSay(t *testing.T, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(f.message, part) {
			t.Errorf("says %q, which lacks %q", f.message, part)
		}
	}
}
