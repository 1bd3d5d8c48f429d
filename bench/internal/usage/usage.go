// Package usage measures what a load costs: time, processor time of this process and of the redis-servers, commands
// and memory.
package usage

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/bench/internal/server"
)

// Meter measures a load.
type Meter struct {
	// Servers are looked at through their probes, which the load does not use.
	Servers []*server.Server
	// Sent counts the commands; nil disables it.
	Sent *server.Sent
}

// Cost is what one unit of work has cost, such as a task. All are NaN when there was no work.
type Cost struct {
	// Micros is time by the clock; Client is the processor time of this process, and Server that of all servers, of all
	// their threads; all three in microseconds.
	Micros, Client, Server float64
	// Commands is how many commands clients have sent; 0 when they were not counted.
	Commands float64
	// Allocations is how often this process has allocated memory, and Bytes how much.
	Allocations, Bytes float64
}

// Measure returns the cost of each unit of work. work does it, and returns how many units that were.
func (m Meter) Measure(ctx context.Context, work func() (units int, err error)) (Cost, error) {
	before, err := m.read(ctx)
	if err != nil {
		return Cost{}, err
	}
	units, err := work()
	if err != nil {
		return Cost{}, err
	}
	after, err := m.read(ctx)
	each := func(before, after float64) float64 {
		if units == 0 {
			return math.NaN()
		}
		return (after - before) / float64(units)
	}
	return Cost{
		Micros: each(before.Micros, after.Micros), Client: each(before.Client, after.Client),
		Server: each(before.Server, after.Server), Commands: each(before.Commands, after.Commands),
		Allocations: each(before.Allocations, after.Allocations), Bytes: each(before.Bytes, after.Bytes),
	}, err
}

// start is what [Cost.Micros] counts from.
var start = time.Now()

// read returns what everything has cost so far.
func (m Meter) read(ctx context.Context) (c Cost, err error) {
	micros := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	for _, s := range m.Servers {
		spent, err := CPU(ctx, s.Probe())
		if err != nil {
			return c, err
		}
		c.Server += micros(spent)
	}
	if m.Sent != nil {
		if c.Commands, err = m.Sent.Count(ctx); err != nil {
			return c, err
		}
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	c.Allocations, c.Bytes = float64(memory.Mallocs), float64(memory.TotalAlloc)
	spent, err := Process()
	c.Client, c.Micros = micros(spent), micros(time.Since(start))
	return c, err
}

// Process returns the processor time that this process has used so far, without that of the servers it has started.
func Process() (time.Duration, error) {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
}

// CPU returns the processor time that a server has used so far.
func CPU(ctx context.Context, client *redis.Client) (time.Duration, error) {
	info, err := client.InfoMap(ctx, "cpu").Result()
	if err != nil {
		return 0, err
	}
	total := 0.0
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(info["CPU"][field], 64)
		if err != nil {
			return 0, fmt.Errorf("the server's %s: %w", field, err)
		}
		total += seconds
	}
	return time.Duration(total * float64(time.Second)), nil
}

// Memory returns how many bytes a server has allocated, and how many keys it has.
func Memory(ctx context.Context, client *redis.Client) (bytes, keys float64, err error) {
	info, err := client.InfoMap(ctx, "memory").Result()
	if err != nil {
		return 0, 0, err
	}
	if bytes, err = strconv.ParseFloat(info["Memory"]["used_memory"], 64); err != nil {
		return 0, 0, fmt.Errorf("the server's used_memory: %w", err)
	}
	n, err := client.DBSize(ctx).Result()
	return bytes, float64(n), err
}
