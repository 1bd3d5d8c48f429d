package measure

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/bench/internal/server"
)

// What a load costs, by the names of the columns that show it.
const (
	Micros       = "µs"          // by the clock
	ClientMicros = "client µs"   // the processor time of this process
	ServerMicros = "server µs"   // that of all servers, of all their threads
	Commands     = "commands"    // that clients have sent; NaN when they were not counted
	Allocations  = "allocations" // how often this process has allocated memory
	Bytes        = "bytes"       // and how much
)

// Cost is what one unit of work has cost, such as a task. All are NaN when there was no work.
type Cost map[string]float64

// Meter measures a load.
type Meter struct {
	// Servers are looked at through their probes, which the load does not use.
	Servers []*server.Server
	// Sent counts the commands; nil disables it.
	Sent *server.Sent
}

// Measure returns the cost of each unit of work. work does it, and returns how many units that were.
func (m Meter) Measure(ctx context.Context, work func() (units int, err error)) (Cost, error) {
	before, err := m.read(ctx)
	if err != nil {
		return nil, err
	}
	units, err := work()
	if err != nil {
		return nil, err
	}
	cost, err := m.read(ctx)
	for what := range cost {
		cost[what] = (cost[what] - before[what]) / float64(units)
		if units == 0 {
			cost[what] = math.NaN()
		}
	}
	return cost, err
}

// Load does work when it is asked to, and rests in between.
type Load interface {
	// Pass does so many units.
	Pass(ctx context.Context, units int) error
	// Close ends it, also while it rests.
	Close() error
}

// Slice returns the cost of each of so many units of a load.
func (m Meter) Slice(ctx context.Context, load Load, units int) (Cost, error) {
	return m.Measure(ctx, func() (int, error) { return units, load.Pass(ctx, units) })
}

// start is what [Micros] counts from.
var start = time.Now()

// read returns what everything has cost so far.
func (m Meter) read(ctx context.Context) (Cost, error) {
	servers := 0.0
	for _, s := range m.Servers {
		used, err := ServerTime(ctx, s)
		if err != nil {
			return nil, err
		}
		servers += 1e6 * used.Seconds()
	}
	commands, err := m.Sent.Count(ctx, m.Servers...)
	if err != nil {
		return nil, err
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	var self syscall.Rusage // without the servers that this process has started
	err = syscall.Getrusage(syscall.RUSAGE_SELF, &self)
	return Cost{
		Micros:       float64(time.Since(start).Nanoseconds()) / 1e3,
		ClientMicros: float64(self.Utime.Nano()+self.Stime.Nano()) / 1e3, ServerMicros: servers, Commands: commands,
		Allocations: float64(memory.Mallocs), Bytes: float64(memory.TotalAlloc),
	}, err
}

// ServerTime returns how much time of processors a server has used, in all of its threads.
func ServerTime(ctx context.Context, s *server.Server) (time.Duration, error) {
	seconds, err := sum(ctx, s.Probe(), "CPU", "used_cpu_user", "used_cpu_sys")
	return time.Duration(seconds * float64(time.Second)), err
}

// Memory returns how many bytes a server has allocated, and how many keys it has.
func Memory(ctx context.Context, client *redis.Client) (bytes, keys float64, err error) {
	if bytes, err = sum(ctx, client, "Memory", "used_memory"); err != nil {
		return 0, 0, err
	}
	n, err := client.DBSize(ctx).Result()
	return bytes, float64(n), err
}

// sum returns the sum of what fields of INFO say.
func sum(ctx context.Context, client *redis.Client, section string, fields ...string) (total float64, err error) {
	info, err := client.InfoMap(ctx, strings.ToLower(section)).Result()
	if err != nil {
		return 0, err
	}
	for _, field := range fields {
		n, err := strconv.ParseFloat(info[section][field], 64)
		if err != nil {
			return 0, fmt.Errorf("the server's %s: %w", field, err)
		}
		total += n
	}
	return total, nil
}
