package main

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

func TestOptionsReportsAllFaultsAtOnce(t *testing.T) {
	t.Parallel()
	_, err := parseOptions(strings.Fields("-n 0 -concurrency 0 -workers -1 -single-try -1 -timeout 0s -strategy maybe -run a/b"), io.Discard)
	for _, want := range []string{"-n is 0", "-concurrency is 0", "-workers is -1", "-single-try is -1", "-timeout is 0s", `-strategy is "maybe"`, `-run is "a/b"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
}

func TestOptionsRefusesWhatDoesNotGoTogether(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"-demo -no-lock":                 "-demo decides",
		"-demo -serve -run a -db b":      "exclude each other",
		"-serve -run a":                  "-serve needs -run and -db",
		"-produce":                       "-produce needs -run",
		"-workers 0":                     "-workers 0 needs",
		"-serve -run a -db b -workers 0": "at least 1",
		"-listen :1":                     "-listen is for -serve",
		"-health http://a -demo":         "exclude each other",
		"-work 20ms,5ms":                 "-work",
		"-work soon":                     "-work",
		"orders.csv":                     "no flag",
	} {
		if _, err := parseOptions(strings.Fields(args), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

func TestOptionsHasDefaults(t *testing.T) {
	t.Parallel()
	o, err := parseOptions(nil, io.Discard)
	if err != nil || o.N != 1000 || o.Workers != 2 || o.Work != (span{5 * time.Millisecond, 20 * time.Millisecond}) || o.Timeline == "" {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err = parseOptions([]string{"-demo"}, io.Discard); err != nil || o.N != demoOrders || o.Work != demoWork {
		t.Errorf("demo: %+v, %v", o, err)
	}
	if o, err = parseOptions(strings.Fields("-serve -run a -db b"), io.Discard); err != nil || o.Workers != 1 {
		t.Errorf("serve: %+v, %v", o, err)
	}
	if o, err = parseOptions(strings.Fields("-work 7ms"), io.Discard); err != nil || o.Work != (span{7 * time.Millisecond, 7 * time.Millisecond}) {
		t.Errorf("work: %+v, %v", o, err)
	}
}

func TestFlagsComeBeforeTheEnvironment(t *testing.T) {
	t.Parallel()
	env := worker.Config{Concurrency: 5, Strategy: middleware.Wait{}, Queues: map[string]int{"audit": 3}}
	for args, want := range map[string]struct {
		concurrency int
		strategy    string
	}{
		"":                   {5, "wait"},
		"-concurrency 7":     {7, "wait"},
		"-strategy requeue":  {5, "requeue"},
		"-strategy failfast": {5, "failfast"},
		"-strategy default":  {5, "default"},
	} {
		o, err := parseOptions(strings.Fields(args), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := o.config(env, testRun)
		if err != nil || cfg.Concurrency != want.concurrency || strategyName(cfg.Strategy) != want.strategy {
			t.Errorf("%q: concurrency %d, strategy %s, %v", args, cfg.Concurrency, strategyName(cfg.Strategy), err)
		}
		if cfg.Queues["audit-test"] != 3 || cfg.Queues["allocate-test"] != 1 || len(cfg.Queues) != 3 {
			t.Errorf("queues %v", cfg.Queues)
		}
	}
	o, _ := parseOptions(nil, io.Discard)
	if cfg, err := o.config(worker.Config{}, testRun); err != nil || cfg.Concurrency != defaultConcurrency {
		t.Errorf("nothing set: concurrency %d, %v", cfg.Concurrency, err)
	}
	if _, err := o.config(worker.Config{Queues: map[string]int{"mail": 1}}, testRun); err == nil || !strings.Contains(err.Error(), `"mail"`) {
		t.Errorf("an unknown queue: %v", err)
	}
}
