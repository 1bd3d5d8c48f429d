package health

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/broker"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func ago(seconds int) time.Time { return now.Add(-time.Duration(seconds) * time.Second) }

// idle is the pulse of a server that fetched a moment ago and found nothing.
func idle() broker.Pulse {
	return broker.Pulse{Ended: ago(0), Worked: true, Answered: ago(0), Interval: 50 * time.Millisecond}
}

func TestReadyNamesWhatPreventsIt(t *testing.T) {
	t.Parallel()
	down := errors.New("connection refused")
	for name, c := range map[string]struct {
		change func(f *Facts, s *broker.Pulse)
		want   string // ready when empty
	}{
		"idle":                          {func(*Facts, *broker.Pulse) {}, ""},
		"a fetch takes a moment":        {func(_ *Facts, s *broker.Pulse) { s.Began = ago(3) }, ""},
		"a fetch failed just now":       {func(_ *Facts, s *broker.Pulse) { s.Failing, s.Err = ago(14), down }, ""},
		"fetches have failed for long":  {func(_ *Facts, s *broker.Pulse) { s.Failing, s.Err = ago(16), down }, "tasks cannot be fetched for 16s: connection refused"},
		"the first fetch failed":        {func(_ *Facts, s *broker.Pulse) { s.Worked, s.Failing, s.Err = false, ago(1), down }, "tasks cannot be fetched for 1s: connection refused"},
		"only heartbeats succeed":       {func(_ *Facts, s *broker.Pulse) { s.Failing, s.Err, s.Answered = ago(16), down, ago(1) }, "tasks cannot be fetched"},
		"a slot is free again":          {func(_ *Facts, s *broker.Pulse) { s.Began, s.Ended, s.Answered = ago(1), ago(600), ago(600) }, ""},
		"all slots have long been busy": {func(_ *Facts, s *broker.Pulse) { s.Ended, s.Answered, s.Busy = ago(600), ago(5), true }, ""},
		"busy, and no heartbeat":        {func(_ *Facts, s *broker.Pulse) { s.Ended, s.Answered, s.Busy = ago(600), ago(16), true }, "the Redis of the tasks has not answered for 16s"},
		"stuck in a fetch":              {func(_ *Facts, s *broker.Pulse) { s.Began = ago(16) }, "the fetch loop has been stuck for 16s"},
		"stuck between fetches":         {func(_ *Facts, s *broker.Pulse) { s.Ended = ago(17) }, "the fetch loop has been stuck for 17s"},
		"a long interval":               {func(_ *Facts, s *broker.Pulse) { s.Interval, s.Ended, s.Answered = time.Hour, ago(3500), ago(3500) }, ""},
		"not started":                   {func(_ *Facts, s *broker.Pulse) { *s = broker.Pulse{} }, "the server has not been started"},
		"at its first fetch":            {func(_ *Facts, s *broker.Pulse) { *s = broker.Pulse{Began: ago(1)} }, "the first fetch is under way"},
		"its only server is gone":       {func(_ *Facts, s *broker.Pulse) { s.Over = true }, "no server runs"},
		"one of two servers is gone": {func(f *Facts, s *broker.Pulse) {
			f.Servers = append(f.Servers, broker.Pulse{Over: true, Ended: ago(900)})
		}, ""},
		"one of two servers is stuck": {func(f *Facts, s *broker.Pulse) {
			f.Servers = append(f.Servers, broker.Pulse{Ended: ago(900), Worked: true, Answered: ago(1)})
		}, "the fetch loop has been stuck for 15m0s"},
		"shutting down":             {func(f *Facts, _ *broker.Pulse) { f.Stopping = true }, "shutting down"},
		"a lock failed just now":    {func(f *Facts, _ *broker.Pulse) { f.Locks = Evidence{Last: ago(14), Err: down} }, ""},
		"locks have long failed":    {func(f *Facts, _ *broker.Pulse) { f.Locks = Evidence{Last: ago(16), Err: down} }, "no lock can be taken for 16s: connection refused"},
		"no lock was ever taken":    {func(f *Facts, _ *broker.Pulse) { f.Locks = Evidence{Err: down} }, "no lock can be taken: connection refused"},
		"a lock was taken long ago": {func(f *Facts, _ *broker.Pulse) { f.Locks = Evidence{Last: ago(900)} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := Facts{Now: now, Servers: []broker.Pulse{idle()}, Locks: Evidence{Last: now}}
			c.change(&f, &f.Servers[0])
			err := Defaults.Ready(f)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v; want %q", err, c.want)
			}
		})
	}
}

func TestOnlyAStuckFetchLoopIsDead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pulse    broker.Pulse
		stopping bool
		dead     bool
	}{
		"idle":                   {pulse: idle()},
		"not started":            {},
		"fetches fail for hours": {pulse: broker.Pulse{Ended: ago(1), Answered: ago(9999), Err: errors.New("down")}},
		"busy for hours":         {pulse: broker.Pulse{Ended: ago(9999), Answered: ago(9999), Busy: true}},
		"stuck for a moment":     {pulse: broker.Pulse{Began: ago(59), Ended: ago(60), Answered: ago(60)}},
		"stuck in a fetch":       {pulse: broker.Pulse{Began: ago(61), Ended: ago(62), Answered: ago(1)}, dead: true},
		"stuck between fetches":  {pulse: broker.Pulse{Ended: ago(61), Answered: ago(1)}, dead: true},
		"gone":                   {pulse: broker.Pulse{Began: ago(999), Over: true}},
		"shutting down":          {pulse: broker.Pulse{Ended: ago(999)}, stopping: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := Defaults.Alive(Facts{Now: now, Stopping: c.stopping, Servers: []broker.Pulse{c.pulse}})
			if (err != nil) != c.dead {
				t.Errorf("%v; want dead: %t", err, c.dead)
			}
		})
	}
}
