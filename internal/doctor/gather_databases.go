package doctor

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/preflight"
)

// mostDatabases limits how many other databases are looked at.
const mostDatabases = 16

// gatherDatabases looks for queues in the other databases of the Redis of the tasks.
func (f *Facts) gatherDatabases(ctx context.Context, client redis.UniversalClient) error {
	one, ok := client.(*redis.Client)
	if !ok {
		return nil // a Cluster has one database
	}
	info, err := one.Info(ctx, "keyspace").Result()
	if err != nil {
		if len(f.Queues) == 0 {
			return fmt.Errorf("there is no queue, and whether another database has some is not known: %w", err)
		}
		return nil
	}
	o := *one.Options()
	for name := range preflight.ParseInfo(info) {
		number, err := strconv.Atoi(strings.TrimPrefix(name, "db"))
		if err != nil || number == one.Options().DB || len(f.Elsewhere) >= mostDatabases {
			continue
		}
		o.DB = number
		d := Database{Addr: o.Addr, Number: number, Here: one.Options().DB, Pending: map[string]int{}}
		if err := d.gather(ctx, &o); err != nil {
			return fmt.Errorf("database %d: %w", number, err)
		}
		if len(d.Pending) > 0 {
			f.Elsewhere = append(f.Elsewhere, d)
		}
	}
	return nil
}

// gather reads the queues of a database.
func (d *Database) gather(ctx context.Context, o *redis.Options) error {
	copied := *o
	client := redis.NewClient(&copied)
	defer client.Close()
	names, err := client.SMembers(ctx, asynqwire.Queues).Result()
	if err != nil {
		return err
	}
	for _, name := range names {
		n, err := client.LLen(ctx, asynqwire.Pending(name)).Result()
		if err != nil {
			return err
		}
		d.Pending[name] = int(n)
	}
	n, err := client.ZCount(ctx, asynqwire.ServersKey, strconv.FormatInt(time.Now().Unix(), 10), "+inf").Result()
	d.Servers = int(n)
	return err
}
