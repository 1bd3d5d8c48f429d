// Package locks is the part of the benchmark about locks: ours against those of other libraries and of etcd, on one server and on
// five, on keys that nobody else wants and on keys that many want, with a server that is broken, and far away from the servers.
package locks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/railtoken/railtoken/bench/internal/report"
)

// The slices of one contestant in a round when all of the work is done. Those far away are as long as those nearby.
const (
	slice          = 500 * time.Millisecond
	contendedSlice = 1250 * time.Millisecond
	outageSlice    = 600 * time.Millisecond
	warmUp         = 250 * time.Millisecond // of those who contend, besides
	shortest       = 10 * time.Millisecond
)

// bench is one run.
type bench struct {
	reps                                       int
	slice, contendedSlice, outageSlice, warmUp time.Duration
	say                                        func(format string, args ...any)
	lab                                        *lab
}

// Measure runs the scenarios that env asks for, on servers of its own. It returns what it has measured with an error too.
func Measure(ctx context.Context, env report.Env) (sections []*report.Section, err error) {
	scaled := func(d time.Duration) time.Duration { return max(d*time.Duration(env.Scale)/100, shortest) }
	b := &bench{
		reps: max(env.Reps, 1), say: env.Say,
		slice: scaled(slice), contendedSlice: scaled(contendedSlice), outageSlice: scaled(outageSlice), warmUp: scaled(warmUp),
		lab: &lab{dir: env.Dir},
	}
	if b.say == nil {
		b.say = func(string, ...any) {}
	}
	b.lab.say = b.say
	wanted := func(p part, s scenario) bool {
		return env.Run == nil || env.Run.MatchString(p.name) || env.Run.MatchString(s.name)
	}
	defer func() { err = errors.Join(err, b.lab.end()) }()
	for _, p := range parts { // servers that are to be old are started first
		for _, s := range p.scenarios {
			if s.five && wanted(p, s) {
				if err := b.lab.startFives(ctx); err != nil {
					return nil, err
				}
			}
		}
	}
	for _, p := range parts {
		section := &report.Section{Name: p.name, Title: p.title, Text: p.text}
		for _, s := range p.scenarios {
			if !wanted(p, s) {
				continue
			}
			if len(section.Tables) == 0 {
				sections = append(sections, section)
			}
			if err := b.run(ctx, section, s); err != nil {
				return sections, fmt.Errorf("%s: %w", s.name, err)
			}
		}
		if len(section.Tables) == 0 {
			continue
		}
		if version := b.lab.etcdVersion; version != "" {
			section.Text += "\n\n" + fmt.Sprintf(etcdText, version, b.lab.etcdPlace)
		}
		section.Charts = p.charts(section)
		if err := b.lab.endEtcd(); err != nil { // idle clusters are not to disturb the others
			return sections, err
		}
	}
	return sections, nil
}

// run adds the table of a scenario, with all that it has when it ends with an error.
func (b *bench) run(ctx context.Context, section *report.Section, s scenario) error {
	b.say("%s: %s", s.name, s.title)
	if s.five {
		if err := b.lab.awaitAge(ctx); err != nil {
			return err
		}
	}
	table := &report.Table{Name: s.name, Title: s.title}
	section.Tables = append(section.Tables, table)
	if err := s.measure(ctx, b, table); err != nil {
		return err
	}
	if s.targets != nil {
		s.targets(table)
	}
	return nil
}
