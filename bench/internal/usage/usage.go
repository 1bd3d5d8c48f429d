// Package usage measures what a load costs: time, processor time of this process and of the redis-servers, commands
// and memory.
package usage

import (
	"context"
	"fmt"
	"strconv"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/bench/internal/server"
)

// Meter reads the counters of a load.
type Meter struct {
	// Servers are looked at through their probes, which the load does not use.
	Servers []*server.Server
	// Sent counts the commands; nil disables it.
	Sent *server.Sent
}

// Reading is what the counters say at a moment.
type Reading struct {
	at              time.Time
	client, servers time.Duration
	commands        float64
}

// Read reads the counters.
func (m Meter) Read(ctx context.Context) (r Reading, err error) {
	for _, s := range m.Servers {
		spent, err := CPU(ctx, s.Probe())
		if err != nil {
			return r, err
		}
		r.servers += spent
	}
	if m.Sent != nil {
		if r.commands, err = m.Sent.Count(ctx); err != nil {
			return r, err
		}
	}
	r.client, err = Process()
	r.at = time.Now()
	return r, err
}

// Cost is what one unit of work has cost, such as a task.
type Cost struct {
	// Micros is time by the clock; Client is the processor time of this process, and Server that of all servers, of all
	// their threads; all three in microseconds.
	Micros, Client, Server float64
	// Commands is how many commands clients have sent; 0 when they were not counted.
	Commands float64
}

// Since returns the cost of each of so many units of work between two readings; NaN or infinite when there are none.
func (r Reading) Since(before Reading, units int) Cost {
	micros := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 / float64(units) }
	return Cost{
		Micros: micros(r.at.Sub(before.at)), Client: micros(r.client - before.client),
		Server: micros(r.servers - before.servers), Commands: (r.commands - before.commands) / float64(units),
	}
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
