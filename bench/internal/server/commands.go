package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"regexp"
	"strconv"
	"strings"
)

// learned is sent to the server at the end of a load: MONITOR shows it when it has shown all of the load.
const learned = "railtoken bench: the load has ended"

// longestLine is more than MONITOR shows of a command of any load.
const longestLine = 16 << 20

// Sent counts the commands that clients send to a server.
//
// Both counters of INFO, total_commands_processed and the calls of commandstats, also count each command that a script
// calls, so an EVALSHA would count two to four times. MONITOR marks those that come from a script. A Sent therefore
// learns from MONITOR, while the load warms up, which commands come from clients, and then counts the calls of these in
// commandstats, which costs the load nothing.
type Sent struct {
	share map[string]float64 // of each command's calls: those that come from clients
}

// Learn watches a server while load runs on it, and returns also the error of load. A MONITOR slows the server down:
// measure nothing meanwhile.
func Learn(ctx context.Context, s *Server, load func() error) (*Sent, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, longestLine)
	if !lines.Scan() || lines.Text() != "+OK" {
		return nil, errors.Join(fmt.Errorf("MONITOR has answered %q", lines.Text()), lines.Err())
	}
	failed := make(chan error, 1)
	go func() {
		err := load()
		if unsent := s.probe.Echo(ctx, learned).Err(); unsent != nil {
			err = errors.Join(err, unsent)
			_ = conn.Close()
		}
		failed <- err
	}()
	all, clients := map[string]float64{}, map[string]float64{}
	for lines.Scan() && !strings.Contains(lines.Text(), learned) {
		if line := monitored.FindStringSubmatch(lines.Text()); line != nil {
			name := strings.ToLower(line[2])
			all[name]++
			if line[1] != "lua" {
				clients[name]++
			}
		}
	}
	sent := &Sent{share: map[string]float64{}}
	for name, n := range all {
		sent.share[name] = clients[name] / n
	}
	return sent, errors.Join(<-failed, lines.Err())
}

// Count returns how many commands clients have sent to the servers so far, without INFO itself; NaN when s is nil. A
// command that was not seen before counts in full.
func (s *Sent) Count(ctx context.Context, servers ...*Server) (total float64, err error) {
	if s == nil {
		return math.NaN(), nil
	}
	for _, one := range servers {
		info, err := one.probe.Info(ctx, "commandstats").Result()
		if err != nil {
			return 0, err
		}
		for _, line := range called.FindAllStringSubmatch(info, -1) {
			name := line[1]
			n, err := strconv.ParseFloat(line[2], 64)
			if err != nil {
				return 0, fmt.Errorf("commandstats has %q: %w", line[0], err)
			}
			if share, ok := s.share[name]; ok {
				n *= share
			}
			if name != "info" && name != "monitor" {
				total += n
			}
		}
	}
	return total, nil
}

// monitored is a line such as +1700000000.123456 [0 127.0.0.1:50000] "SET" "key" "value", or [0 lua] for a script's.
var monitored = regexp.MustCompile(`\[\d+ (\S+)\] "([^"]*)"`)

// called is a line such as cmdstat_set:calls=12,usec=34. A subcommand, client|setinfo, counts for its command.
var called = regexp.MustCompile(`cmdstat_([^:|]*)[^:]*:calls=(\d+)`)
