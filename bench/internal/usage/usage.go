// Package usage takes what a load costs: time, processor time of this process and of the redis-servers, commands and memory.
package usage

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/bench/internal/server"
)

// Meter reads the counters of a load.
type Meter struct {
	// Servers are looked at through these clients, which the load does not use.
	Servers []*redis.Client
	// Sent counts the commands; they are not counted when it is nil.
	Sent *server.Sent
}

// Reading is what the counters say at a moment.
type Reading struct {
	at       time.Time
	client   time.Duration
	servers  []time.Duration
	commands float64
}

// Read reads the counters.
func (m Meter) Read(ctx context.Context) (Reading, error) {
	r := Reading{servers: make([]time.Duration, len(m.Servers))}
	var err error
	for i, client := range m.Servers {
		if r.servers[i], err = CPU(ctx, client); err != nil {
			return r, err
		}
	}
	if m.Sent != nil {
		if r.commands, err = m.Sent.Count(ctx); err != nil {
			return r, err
		}
	}
	r.client, err = process()
	r.at = time.Now()
	return r, err
}

// Cost is what some work has cost.
type Cost struct {
	// Units is how much work it was, such as a number of tasks.
	Units int
	// Took is by the clock.
	Took time.Duration
	// Client is the processor time of this process, Servers that of each server, of all their threads.
	Client  time.Duration
	Servers []time.Duration
	// Commands is how many commands clients have sent; 0 when they were not counted.
	Commands float64
}

// Since returns the cost of so many units of work between two readings.
func (r Reading) Since(before Reading, units int) Cost {
	c := Cost{Units: units, Took: r.at.Sub(before.at), Client: r.client - before.client, Commands: r.commands - before.commands}
	for i := range r.servers {
		c.Servers = append(c.Servers, r.servers[i]-before.servers[i])
	}
	return c
}

// Micros returns d for one unit, in us.
func (c Cost) Micros(d time.Duration) float64 {
	return float64(d.Nanoseconds()) / 1e3 / float64(c.Units)
}

// ServerTime is the processor time of all servers.
func (c Cost) ServerTime() time.Duration {
	total := time.Duration(0)
	for _, d := range c.Servers {
		total += d
	}
	return total
}

// PerUnit returns how many commands were sent for one unit.
func (c Cost) PerUnit() float64 { return c.Commands / float64(c.Units) }

// Rate returns how many units were done in a second.
func (c Cost) Rate() float64 { return float64(c.Units) / c.Took.Seconds() }

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
