package restartguard

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Facts is what a server reports about itself.
type Facts struct {
	RunID   string // 40 hex digits, new for every process; empty if the server does not report it
	Role    string // "master" or "slave"
	ReplID  string // the server's history of writes
	ReplID2 string // its history before a failover; empty if there was none
	// Uptime is the age of the process by the server's wall clock. It is no proof: the clock may have been set.
	Uptime time.Duration
	// Watched is how long a client has watched this process, with this history, by the client's own monotonic clock, as
	// its mark on the server says. It is zero without a mark.
	Watched   time.Duration
	MaxMemory int64  // bytes; 0 for no limit
	Policy    string // what the server does when MaxMemory is reached
	// Clock is the server's wall clock at some instant of the round trip.
	Clock time.Time
	// Asked is this machine's clock in the middle of the round trip.
	Asked time.Time
	// RoundTrip is how long it took.
	RoundTrip time.Duration
}

// ParseFacts parses the replies to INFO server, INFO replication and INFO memory. The clocks stay zero: see
// [Facts.Timed]. It returns an error if a reply is cut off or contradicts itself.
func ParseFacts(server, replication, memory string) (Facts, error) {
	in := info{}
	errs := []error{in.add("server", server), in.add("replication", replication), in.add("memory", memory)}
	if err := errors.Join(errs...); err != nil {
		return Facts{}, err
	}
	if in["run_id"] == "" {
		return Facts{}, nil
	}
	f := Facts{
		RunID:     in.id("run_id", &errs),
		Role:      in.word("role", &errs),
		ReplID:    in.id("master_replid", &errs),
		ReplID2:   in.id("master_replid2", &errs),
		Uptime:    time.Duration(in.number("uptime_in_seconds", math.MinInt64/int64(time.Second), &errs)) * time.Second,
		MaxMemory: in.number("maxmemory", 0, &errs),
	}
	if f.MaxMemory > 0 {
		f.Policy = in.word("maxmemory_policy", &errs)
	}
	if strings.Trim(f.ReplID2, "0") == "" {
		f.ReplID2 = ""
	}
	if err := errors.Join(errs...); err != nil {
		return Facts{}, err
	}
	return f, nil
}

// Timed returns the facts with the clocks: clock is the reply to TIME, which was requested at sent.
func (f Facts) Timed(clock, sent, received time.Time) Facts {
	f.Clock, f.RoundTrip = clock, received.Sub(sent)
	f.Asked = sent.Add(f.RoundTrip / 2)
	return f
}

// Identity returns the identity of the server, its process and its history of writes, for [Script].
func (f Facts) Identity() string { return f.RunID + " " + f.ReplID }

// skew returns how far the server's clock is ahead of this machine's.
func (f Facts) skew() time.Duration { return f.Clock.Sub(f.Asked) }

// info holds the fields of INFO.
type info map[string]string

// wanted holds the fields of INFO that matter.
var wanted = map[string]bool{
	"run_id": true, "uptime_in_seconds": true, "role": true, "master_replid": true, "master_replid2": true,
	"maxmemory": true, "maxmemory_policy": true,
}

// add parses a section. It accepts only whole lines, because a truncated number would look like a smaller one.
func (in info) add(section, text string) error {
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(line, ":")
		if !ok || !wanted[name] {
			continue
		}
		if !strings.HasSuffix(value, "\n") {
			return fmt.Errorf("INFO %s is cut off at %s", section, name)
		}
		value = strings.TrimRight(value, "\r\n")
		if before, twice := in[name]; twice && before != value {
			return fmt.Errorf("INFO %s says %s twice, %.80q and %.80q", section, name, before, value)
		}
		in[name] = value
	}
	return nil
}

// word returns a field, and adds an error if it is missing.
func (in info) word(name string, errs *[]error) string {
	if in[name] == "" {
		*errs = append(*errs, fmt.Errorf("INFO does not tell %s", name))
	}
	return in[name]
}

// id returns a field that must have 40 hex digits.
func (in info) id(name string, errs *[]error) string {
	id := in.word(name, errs)
	if id != "" && (len(id) != 40 || strings.Trim(id, "0123456789abcdef") != "") {
		*errs = append(*errs, fmt.Errorf("INFO says %s:%.80q, which is not 40 hex digits", name, id))
	}
	return id
}

// number returns a field that must be a number of at least least, and must fit a duration if it counts seconds.
func (in info) number(name string, least int64, errs *[]error) int64 {
	text := in.word(name, errs)
	if text == "" {
		return 0
	}
	most := int64(math.MaxInt64)
	if strings.HasSuffix(name, "_seconds") {
		most = math.MaxInt64 / int64(time.Second)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		*errs = append(*errs, fmt.Errorf("INFO says %s:%.80q, which is not a number that it can be", name, text))
		return 0
	}
	return n
}
