package worker

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/namespace"
)

// lockVariable is the part of the names of variables that describe the Redis of the locks.
const lockVariable = "LOCK_REDIS"

// nodesVariable names the servers for locks on several servers.
const nodesVariable = "RAILTOKEN_LOCK_NODES"

// Redis describes how to reach a Redis. Exactly one of these must be set: Addr, Master with Sentinels, Cluster, Client
// or, for locks only, Nodes. The variables of [Config].LockRedis begin with RAILTOKEN_LOCK_REDIS_ instead.
type Redis struct {
	// Addr is the address of a standalone server: "host:port", or the path of its unix socket. RAILTOKEN_REDIS_ADDR.
	Addr string
	// Master is the name of a master, and Sentinels are the addresses, each "host:port", of the Sentinels that watch it.
	// RAILTOKEN_REDIS_MASTER and, separated by commas, RAILTOKEN_REDIS_SENTINELS.
	Master    string
	Sentinels []string
	// Cluster lists some nodes of a Redis Cluster, each "host:port"; the others are discovered. A Cluster may hold tasks
	// as well as locks. RAILTOKEN_REDIS_CLUSTER, separated by commas.
	Cluster []string
	// Nodes lists three or more independent masters, each "host:port", for locks by [locking.Redlock]; five are usual.
	// Tasks cannot be stored there. RAILTOKEN_LOCK_NODES, separated by commas.
	Nodes []string

	// Client is an existing client of a standalone server, of Sentinels or of a Cluster. The caller still owns it and
	// closes it after the worker has ended, and the fields below do not apply to it. It cannot be set by a variable.
	Client redis.UniversalClient

	// Namespace keeps applications apart that share this Redis: "shop-a" puts "shop-a:" before the names of railtoken's keys
	// and channels, and with NamespaceTasks also before those of asynq, so that a user of Redis with the rules ~shop-a:* and
	// &shop-a:* suffices. None when empty. All workers and producers of an application must have the same; asynq's own tools
	// need a client of attach.Namespaced. It applies to Client and Nodes, too. The Namespace of LockRedis is that of Redis
	// unless it has one. RAILTOKEN_NAMESPACE, RAILTOKEN_NAMESPACE_TASKS.
	Namespace      string
	NamespaceTasks bool

	// Lanes is how many lanes the queues have on a Redis Cluster, as in attach.Options; 0 for none. All workers and producers must
	// have the same number. LockRedis has none. RAILTOKEN_LANES.
	Lanes int

	// Username and Password are the credentials for Redis. RAILTOKEN_REDIS_USERNAME, RAILTOKEN_REDIS_PASSWORD or, in the
	// file that it names, RAILTOKEN_REDIS_PASSWORD_FILE.
	Username string
	Password Secret
	// SentinelPassword is the password of the Sentinels. RAILTOKEN_REDIS_SENTINEL_PASSWORD or, in the file that it names,
	// RAILTOKEN_REDIS_SENTINEL_PASSWORD_FILE.
	SentinelPassword Secret
	// DB is the number of the database; it must be 0 on a cluster. RAILTOKEN_REDIS_DB.
	DB int
	// TLS encrypts the connections, with the system's certificates. RAILTOKEN_REDIS_TLS: true or false.
	TLS bool
	// TLSConfig, if set, encrypts the connections with this configuration. RAILTOKEN_REDIS_TLS_CA_FILE names a file with the
	// certificates to trust instead of the system's, RAILTOKEN_REDIS_TLS_CERT_FILE and RAILTOKEN_REDIS_TLS_KEY_FILE the
	// client's certificate and key, all in PEM format; RAILTOKEN_REDIS_TLS_SERVER_NAME is the name that the server's
	// certificate must have, if not the address. The client's certificate is read again for each connection.
	TLSConfig *tls.Config
	// Tune, if set, changes the options of the clients that are created, such as pool sizes and timeouts. It does not
	// apply to Nodes.
	Tune func(*redis.UniversalOptions)
}

func (r Redis) isZero() bool {
	return r.Addr == "" && r.Master == "" && len(r.Sentinels) == 0 && len(r.Cluster) == 0 && len(r.Nodes) == 0 &&
		r.Client == nil && r.Username == "" && r.Password == "" && r.SentinelPassword == "" && r.DB == 0 &&
		!r.TLS && r.TLSConfig == nil && r.Tune == nil
}

func (r Redis) isCluster() bool {
	_, cluster := r.Client.(*redis.ClusterClient)
	return cluster || len(r.Cluster) > 0
}

func (r Redis) isRedlock() bool { return len(r.Nodes) > 0 }

// validate returns all faults at once. variable is a part of the names of the variables, such as "REDIS".
func (r Redis) validate(variable string) error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf("worker: "+format, args...)) }
	if _, err := r.namespace(); err != nil {
		fault("RAILTOKEN_NAMESPACE: %w", err)
	}
	kinds := 0
	for _, set := range []bool{
		r.Addr != "", r.Master != "" || len(r.Sentinels) > 0, len(r.Cluster) > 0, r.isRedlock(), r.Client != nil,
	} {
		if set {
			kinds++
		}
	}
	switch {
	case kinds == 0:
		remedy := fmt.Sprintf("set RAILTOKEN_%s_ADDR to host:port (or _MASTER and _SENTINELS, or _CLUSTER)", variable)
		if variable == lockVariable {
			remedy += ", or " + nodesVariable + " for locks on several servers"
		}
		fault("no address of Redis: %s", remedy)
	case kinds > 1:
		fault("several kinds of Redis at once: set only one of RAILTOKEN_%[1]s_ADDR, RAILTOKEN_%[1]s_MASTER, "+
			"RAILTOKEN_%[1]s_CLUSTER, Client and, for locks, "+nodesVariable, variable)
	}
	if r.isRedlock() && variable != lockVariable {
		fault("Redis.Nodes is set, but tasks are on one Redis: set LockRedis.Nodes for locks on several")
	}
	if r.isRedlock() && len(r.Nodes) < 3 {
		fault("%s names %d servers: locks on several servers need at least 3 independent ones", nodesVariable,
			len(r.Nodes))
	}
	if (r.Master == "") != (len(r.Sentinels) == 0) {
		fault("RAILTOKEN_%[1]s_MASTER and RAILTOKEN_%[1]s_SENTINELS belong together: set both", variable)
	}
	seen := map[string]bool{}
	for _, addr := range r.Nodes {
		if addr = strings.ToLower(addr); seen[addr] && !isURL(addr) {
			fault("%s has %q twice: name each server once", nodesVariable, addr)
		}
		seen[addr] = true
	}
	if r.Addr != "" {
		errs = append(errs, checkAddrs(variable+"_ADDR", r.Addr))
	}
	errs = append(errs, checkAddrs(variable+"_SENTINELS", r.Sentinels...),
		checkAddrs(variable+"_CLUSTER", r.Cluster...), checkAddrs("LOCK_NODES", r.Nodes...))
	if r.DB < 0 || r.DB > 0 && r.isCluster() {
		fault("RAILTOKEN_%s_DB is %d: a database has a number from 0, and on a cluster it is 0", variable, r.DB)
	}
	return errors.Join(errs...)
}

// checkAddrs returns everything that is wrong with some addresses. A URL may have a password in it and is not shown;
// nor are those beside it, which may be parts of a password with commas.
func checkAddrs(variable string, addrs ...string) error {
	if slices.ContainsFunc(addrs, isURL) {
		return fmt.Errorf("worker: RAILTOKEN_%s is a URL: give host:port alone, and user, password, database and TLS "+
			"in their own variables", variable)
	}
	var errs []error
	for _, addr := range addrs {
		if strings.HasPrefix(addr, "/") {
			continue // a unix socket
		}
		host, port, err := net.SplitHostPort(addr)
		if err != nil || port == "" || strings.TrimSpace(host) != host {
			errs = append(errs,
				fmt.Errorf("worker: RAILTOKEN_%s has %q: it must be host:port, for example 127.0.0.1:6379, or the path "+
					"of a unix socket", variable, addr))
		}
	}
	return errors.Join(errs...)
}

func isURL(addr string) bool { return strings.Contains(addr, "://") || strings.Contains(addr, "@") }

// String returns the addresses without secrets.
func (r Redis) String() string {
	switch {
	case r.Addr != "":
		return shown(r.Addr)
	case r.Master != "":
		return "master " + r.Master + " of sentinels " + shown(r.Sentinels...)
	case r.isCluster():
		return "cluster " + shown(r.Cluster...)
	case r.isRedlock():
		return "nodes " + shown(r.Nodes...)
	case r.Client != nil:
		return "the client that was given"
	default:
		return ""
	}
}

// GoString returns what String returns, for %#v.
func (r Redis) GoString() string { return "worker.Redis{" + r.String() + "}" }

// shown returns addresses for display, redacted if one may contain a password.
func shown(addrs ...string) string {
	if slices.ContainsFunc(addrs, isURL) {
		return redacted
	}
	return strings.Join(addrs, ",")
}

// addrVariable returns the name of the variable that contains the addresses.
func (r Redis) addrVariable(variable string) string {
	switch {
	case r.Master != "":
		return "RAILTOKEN_" + variable + "_SENTINELS"
	case r.isCluster():
		return "RAILTOKEN_" + variable + "_CLUSTER"
	case r.isRedlock():
		return nodesVariable
	case r.Client != nil:
		return "the address of the client that was given"
	default:
		return "RAILTOKEN_" + variable + "_ADDR"
	}
}

// withoutSecrets returns a copy without passwords, for messages.
func (r Redis) withoutSecrets() Redis {
	r.Password, r.SentinelPassword = "", ""
	return r
}

// encryption returns the TLS configuration of connections; nil if they are not encrypted.
func (r Redis) encryption() *tls.Config {
	if r.TLSConfig == nil && r.TLS {
		return &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return r.TLSConfig
}

// Connect returns a new client of this Redis, which connects at first use, or Client if that is set and has the Namespace.
// Close a new client when you no longer need it. It is for programs that run alongside a worker, such as one that uses package inspect; a
// Redlock has [Redis.NodeOptions] instead, and Connect returns nil for it. It also returns nil if the Namespace is invalid:
// see [Config.Validate].
func (r Redis) Connect() redis.UniversalClient {
	if r.isRedlock() {
		return nil
	}
	client, _, err := r.client()
	if err != nil {
		return nil
	}
	return client
}

// NodeOptions returns the client options of each of the Nodes, in their order and with the Namespace; none if the locks are on
// one Redis.
func (r Redis) NodeOptions() []*redis.Options {
	all := r.nodes()
	if in, err := r.namespace(); err == nil {
		for _, o := range all {
			_ = namespace.Wrap(o, in) // these options cache nothing
		}
	}
	return all
}

// nodes returns the client options of each of the Nodes.
func (r Redis) nodes() []*redis.Options {
	all := make([]*redis.Options, len(r.Nodes))
	for i, addr := range r.Nodes {
		all[i] = &redis.Options{
			Addr: addr, Username: r.Username, Password: string(r.Password), DB: r.DB, TLSConfig: r.encryption(),
		}
	}
	return all
}

// namespace returns the namespace of the connections.
func (r Redis) namespace() (namespace.Namespace, error) {
	return namespace.New(r.Namespace, r.NamespaceTasks)
}

// inherits returns r with a namespace of its own, or else that of another Redis.
func (r Redis) inherits(from Redis) Redis {
	if r.Namespace == "" {
		r.Namespace, r.NamespaceTasks = from.Namespace, from.NamespaceTasks
	}
	return r
}

// client returns Client if it is set, and otherwise a new client that connects at first use. made says that the caller must
// close it. Each mod may change the options of a new one.
func (r Redis) client(mods ...func(*redis.UniversalOptions)) (client redis.UniversalClient, made bool, err error) {
	in, err := r.namespace()
	if err != nil {
		return nil, false, fmt.Errorf("worker: %w", err)
	}
	if r.Client != nil {
		client, made, err = namespace.Client(r.Client, in)
		if err != nil {
			err = fmt.Errorf("worker: %w", err)
		}
		return client, made, err
	}
	// go-redis logs failures of connections by itself; the worker reports those that matter.
	o := &redis.UniversalOptions{
		Username: r.Username, Password: string(r.Password), DB: r.DB, TLSConfig: r.encryption(),
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
	for _, mod := range mods {
		mod(o)
	}
	if r.Tune != nil {
		r.Tune(o)
	}
	client, err = namespace.Open(o, in)
	if err != nil {
		return nil, false, fmt.Errorf("worker: %w", err)
	}
	return client, true, nil
}
