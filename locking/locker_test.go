package locking

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestValidateReportsEverythingAtOnce(t *testing.T) {
	t.Parallel()
	err := Options{TTL: time.Second - 1, MaxHold: time.Millisecond, Notify: -1}.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, fault := range []string{"TTL is 999.999999ms", "MaxHold is 1ms", "Notify is -1ns"} {
		if !strings.Contains(err.Error(), fault) {
			t.Errorf("error %q does not say %q", err, fault)
		}
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if !strings.HasPrefix(line, "locking: ") {
			t.Errorf("the line %q does not say whose it is", line)
		}
	}
}

func TestValidateKnowsTheLimits(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		opts Options
		ok   bool
	}{
		"the zero value":              {Options{}, true},
		"the shortest TTL":            {Options{TTL: time.Second}, true},
		"a shorter TTL":               {Options{TTL: time.Second - 1}, false},
		"a negative TTL":              {Options{TTL: -time.Second}, false},
		"a TTL above asynq's limit":   {Options{TTL: 10 * time.Minute}, true},
		"a TTL above MaxHold":         {Options{TTL: time.Hour, MaxHold: time.Hour - 1}, false},
		"MaxHold as long as the TTL":  {Options{TTL: 2 * time.Second, MaxHold: 2 * time.Second}, true},
		"MaxHold below the TTL":       {Options{TTL: 2 * time.Second, MaxHold: 2*time.Second - 1}, false},
		"MaxHold below the default":   {Options{MaxHold: DefaultTTL - 1}, false},
		"a negative MaxHold":          {Options{MaxHold: -time.Second}, false},
		"a subscription":              {Options{Notify: time.Hour}, true},
		"a label that must be shaped": {Options{Label: "\x00" + strings.Repeat("x", 1000)}, true},
	} {
		if err := tt.opts.Validate(); (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPrepareSortsKeysAndFillsInDefaults(t *testing.T) {
	t.Parallel()
	given := []string{"b", "a", "b", "", "a"}
	keys, opts, err := prepare(given, Options{})
	if err != nil || !slices.Equal(keys, []string{"", "a", "b"}) {
		t.Errorf("keys %q, %v", keys, err)
	}
	if opts.TTL != 30*time.Second || opts.MaxHold != 30*time.Minute {
		t.Errorf("defaults %+v", opts)
	}
	if !slices.Equal(given, []string{"b", "a", "b", "", "a"}) {
		t.Errorf("the caller's keys were changed to %q", given)
	}
	one := []string{"a"}
	keys, _, _ = prepare(one, Options{})
	if one[0] = "changed by the caller"; keys[0] != "a" {
		t.Error("the keys are the caller's")
	}
	for name, keys := range map[string][]string{"nil": nil, "none": {}} {
		if _, _, err := prepare(keys, Options{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, _, err := prepare(one, Options{TTL: -1, Notify: -1}); err == nil || errors.Is(err, ErrHeld) {
		t.Errorf("error %v, want one about the options", err)
	}
}

func TestAZeroLockerNamesItsConstructor(t *testing.T) {
	t.Parallel()
	for _, l := range []Locker{new(Single), new(Redlock)} {
		_, err := l.Acquire(t.Context(), []string{"order:1"}, Options{})
		if err == nil || !strings.Contains(err.Error(), "NewSingle or NewRedlock") {
			t.Errorf("%T: %v", l, err)
		}
	}
}

func TestTheDefaultLabelNamesTheProcess(t *testing.T) {
	t.Parallel()
	if label := DefaultLabel(); !strings.HasSuffix(label, "/"+strconv.Itoa(os.Getpid())) ||
		strings.HasPrefix(label, "/") {
		t.Errorf("label %q, want host/pid", label)
	}
}
