package main

import (
	"context"

	"github.com/railtoken/railtoken/bench/internal/cost"
	"github.com/railtoken/railtoken/bench/internal/growth"
	"github.com/railtoken/railtoken/bench/internal/locks"
	"github.com/railtoken/railtoken/bench/internal/profile"
	"github.com/railtoken/railtoken/bench/internal/report"
	"github.com/railtoken/railtoken/bench/internal/shards"
	"github.com/railtoken/railtoken/bench/internal/tasks"
)

// part is one package of measurements.
type part struct {
	name    string
	measure func(context.Context, report.Env) ([]*report.Section, error)
}

// parts in the order of the report.
var parts = []part{
	{"locks", locks.Measure},
	{"tasks", tasks.Measure},
	{"growth", growth.Measure},
	{"cost", cost.Measure},
	{"profile", profile.Measure},
	{"shards", shards.Measure},
}

// modules are the libraries whose versions the report names.
var modules = []string{
	"github.com/hibiken/asynq", "github.com/redis/go-redis/v9", "github.com/go-redsync/redsync/v4", "github.com/bsm/redislock",
	"github.com/redis/rueidis", "go.etcd.io/etcd/client/v3",
}
