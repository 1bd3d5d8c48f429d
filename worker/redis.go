package worker

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Redis says where a Redis is: exactly one of Addr, Master with Sentinels, and Cluster must be set.
type Redis struct {
	// Addr is a standalone server, "host:port". RAILTOKEN_REDIS_ADDR.
	Addr string
	// Master is the name of a master that the Sentinels, each "host:port", watch over. RAILTOKEN_REDIS_MASTER and, separated
	// by commas, RAILTOKEN_REDIS_SENTINELS.
	Master    string
	Sentinels []string
	// Cluster is some nodes of a Redis Cluster, each "host:port". Tasks cannot be parked on a cluster; locks can be there.
	// RAILTOKEN_REDIS_CLUSTER, separated by commas.
	Cluster []string

	// Username and Password are those of Redis. RAILTOKEN_REDIS_USERNAME, RAILTOKEN_REDIS_PASSWORD.
	Username string
	Password Secret
	// SentinelPassword is that of the Sentinels. RAILTOKEN_REDIS_SENTINEL_PASSWORD.
	SentinelPassword Secret
	// DB is the number of the database; 0 only on a cluster. RAILTOKEN_REDIS_DB.
	DB int
	// TLS encrypts the connections, by the system's certificates. RAILTOKEN_REDIS_TLS: true or false.
	TLS bool
	// TLSConfig, when not nil, encrypts the connections in its own way.
	TLSConfig *tls.Config
}

func (r Redis) isZero() bool {
	return r.Addr == "" && r.Master == "" && len(r.Sentinels) == 0 && len(r.Cluster) == 0
}

func (r Redis) isCluster() bool { return len(r.Cluster) > 0 }

// validate returns every fault at once. variable is the part of the environment's names, such as "REDIS".
func (r Redis) validate(variable string) error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf("worker: "+format, args...)) }
	kinds := 0
	for _, set := range []bool{r.Addr != "", r.Master != "" || len(r.Sentinels) > 0, r.isCluster()} {
		if set {
			kinds++
		}
	}
	switch {
	case kinds == 0:
		fault("no address of Redis: set RAILTOKEN_%s_ADDR to host:port (or _MASTER and _SENTINELS, or _CLUSTER)", variable)
	case kinds > 1:
		fault("several kinds of Redis at once: set only one of RAILTOKEN_%[1]s_ADDR, RAILTOKEN_%[1]s_MASTER and RAILTOKEN_%[1]s_CLUSTER", variable)
	}
	if (r.Master == "") != (len(r.Sentinels) == 0) {
		fault("RAILTOKEN_%[1]s_MASTER and RAILTOKEN_%[1]s_SENTINELS belong together: set both", variable)
	}
	if r.Addr != "" {
		errs = append(errs, checkAddr(variable+"_ADDR", r.Addr))
	}
	for _, a := range r.Sentinels {
		errs = append(errs, checkAddr(variable+"_SENTINELS", a))
	}
	for _, a := range r.Cluster {
		errs = append(errs, checkAddr(variable+"_CLUSTER", a))
	}
	if r.DB < 0 || r.DB > 0 && r.isCluster() {
		fault("RAILTOKEN_%s_DB is %d: a database has a number from 0, and on a cluster it is 0", variable, r.DB)
	}
	return errors.Join(errs...)
}

// checkAddr returns what is wrong with an address. What stands before an @ may be a password and is not shown.
func checkAddr(variable, addr string) error {
	if strings.Contains(addr, "://") || strings.Contains(addr, "@") {
		return fmt.Errorf("worker: RAILTOKEN_%s is a URL: give host:port alone, and user, password, database and TLS in their own variables", variable)
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil || port == "" || strings.TrimSpace(host) != host {
		return fmt.Errorf("worker: RAILTOKEN_%s has %q: it must be host:port, for example 127.0.0.1:6379", variable, addr)
	}
	return nil
}

// String returns the addresses, without any secret.
func (r Redis) String() string {
	switch {
	case r.Addr != "":
		return r.Addr
	case r.Master != "":
		return "master " + r.Master + " of sentinels " + strings.Join(r.Sentinels, ",")
	case r.isCluster():
		return "cluster " + strings.Join(r.Cluster, ",")
	default:
		return ""
	}
}

// client returns a client that connects when it is used.
func (r Redis) client() redis.UniversalClient {
	tlsConfig := r.TLSConfig
	if tlsConfig == nil && r.TLS {
		tlsConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	// go-redis logs what fails in a connection by itself; the worker reports it where it matters.
	o := &redis.UniversalOptions{
		Username: r.Username, Password: string(r.Password), DB: r.DB, TLSConfig: tlsConfig,
		MasterName: r.Master, SentinelPassword: string(r.SentinelPassword), ContextTimeoutEnabled: true,
	}
	switch {
	case r.isCluster():
		o.Addrs, o.IsClusterMode = r.Cluster, true
	case r.Master != "":
		o.Addrs = r.Sentinels
	default:
		o.Addrs = []string{r.Addr}
	}
	return redis.NewUniversalClient(o)
}
