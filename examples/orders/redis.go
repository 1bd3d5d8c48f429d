package main

import (
	"crypto/tls"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/worker"
	"github.com/railtoken/railtoken/worker/embeddedredis"
)

// addresses are the variables that name a Redis, each of another kind.
var addresses = []string{"RAILTOKEN_REDIS_ADDR", "RAILTOKEN_REDIS_MASTER", "RAILTOKEN_REDIS_SENTINELS", "RAILTOKEN_REDIS_CLUSTER"}

// mostEmbedded is how many orders the embedded Redis can handle in a minute or so.
const mostEmbedded = 800

// environment reads the RAILTOKEN_* variables. If they name no Redis and mayEmbed is set, it starts an embedded one, which
// closeRedis ends.
func environment(mayEmbed bool) (cfg worker.Config, isEmbedded bool, closeRedis func(), err error) {
	closeRedis = func() {}
	named := false
	for _, name := range addresses {
		named = named || os.Getenv(name) != ""
	}
	if !named && mayEmbed {
		server, err := embeddedredis.Start()
		if err != nil {
			return cfg, false, closeRedis, err
		}
		closeRedis = func() { _ = server.Close() } // never fails
		isEmbedded = true
		// FromEnv requires an address. Everything else that it reads applies to an embedded Redis too.
		err = os.Setenv(addresses[0], server.Addr())
		defer os.Unsetenv(addresses[0])
		if err != nil {
			return cfg, true, closeRedis, err
		}
	}
	cfg, err = worker.FromEnv()
	return cfg, isEmbedded, closeRedis, err
}

// connect returns a client for reading asynq's archive and for cleaning up.
func connect(at worker.Redis) redis.UniversalClient {
	o := &redis.UniversalOptions{
		Addrs: []string{at.Addr}, DB: at.DB, Username: at.Username, Password: string(at.Password),
		MasterName: at.Master, SentinelPassword: string(at.SentinelPassword), TLSConfig: at.TLSConfig,
	}
	switch {
	case len(at.Cluster) > 0:
		o.Addrs, o.IsClusterMode = at.Cluster, true
	case at.Master != "":
		o.Addrs = at.Sentinels
	}
	if o.TLSConfig == nil && at.TLS {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return redis.NewUniversalClient(o)
}
