package namespace

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"time"
	"weak"

	"github.com/redis/go-redis/v9"
)

// clients has what is known of the clients that this package has made, by weak pointers to them.
var clients sync.Map

// origin is what is known of a client.
type origin struct {
	in      Namespace
	outside func() redis.UniversalClient
}

// Of returns the namespace of a client: the zero value if this package has not made it.
func Of(client redis.UniversalClient) Namespace { return originOf(client).in }

// Outside returns a new client of the Redis of a client that has a namespace, without that; nil if it has none.
func Outside(client redis.UniversalClient) redis.UniversalClient {
	if o := originOf(client); o.outside != nil {
		return o.outside()
	}
	return nil
}

func originOf(client redis.UniversalClient) origin {
	var key any
	switch c := client.(type) {
	case *redis.Client:
		key = weak.Make(c)
	case *redis.ClusterClient:
		key = weak.Make(c)
	}
	known, _ := clients.Load(key)
	from, _ := known.(origin)
	return from
}

// Client returns a client of the same Redis in a namespace, with connections of its own. made says that the caller must
// close it: without a namespace, or if the client has that namespace already, it is the same client. Hooks of the client
// are not those of the new one.
func Client(client redis.UniversalClient, n Namespace) (in redis.UniversalClient, made bool, err error) {
	switch has := Of(client); {
	case n.IsZero() || has == n:
		return client, false, nil
	case !has.IsZero():
		return nil, false, fmt.Errorf("the client has the namespace %q already, and is to have %q: give both the same", has.Name, n.Name)
	}
	switch c := client.(type) {
	case *redis.Client:
		client, err := plain(again(*c.Options()), n)
		return client, err == nil, err
	case *redis.ClusterClient:
		o := *c.Options()
		o.ReadTimeout, o.WriteTimeout = unset(o.ReadTimeout), unset(o.WriteTimeout)
		o.MinRetryBackoff, o.MaxRetryBackoff = unset(o.MinRetryBackoff), unset(o.MaxRetryBackoff)
		o.MaxRedirects = int(unset(time.Duration(o.MaxRedirects)))
		return cluster(o, n), true, nil
	default:
		return nil, false, fmt.Errorf("a %T has no namespace: give a *redis.Client or a *redis.ClusterClient", client)
	}
}

// Open returns a new client in a namespace, as redis.NewUniversalClient does without one.
func Open(o *redis.UniversalOptions, n Namespace) (redis.UniversalClient, error) {
	switch {
	case n.IsZero():
		return redis.NewUniversalClient(o), nil
	case o.MasterName != "":
		if o.RouteByLatency || o.RouteRandomly {
			return nil, errors.New("replicas have no namespace: leave out RouteByLatency and RouteRandomly")
		}
		failover := o.Failover()
		failover.MinIdleConns = 0 // they would be made before the connections have the namespace
		client := redis.NewFailoverClient(failover)
		// Only what go-redis has put into the options knows where the master is. It dials by them from now on.
		if err := Wrap(client.Options(), n); err != nil {
			return nil, errors.Join(err, client.Close())
		}
		return known(client, origin{n, func() redis.UniversalClient { return redis.NewFailoverClient(o.Failover()) }}), nil
	case o.IsClusterMode || len(o.Addrs) > 1:
		return cluster(*o.Cluster(), n), nil
	default:
		return plain(*o.Simple(), n)
	}
}

// plain returns a client of one Redis in a namespace.
func plain(o redis.Options, n Namespace) (redis.UniversalClient, error) {
	without := o
	if err := Wrap(&o, n); err != nil {
		return nil, err
	}
	return known(redis.NewClient(&o), origin{n, func() redis.UniversalClient {
		o := without
		return redis.NewClient(&o)
	}}), nil
}

// cluster returns a client of a Redis Cluster in a namespace.
func cluster(o redis.ClusterOptions, n Namespace) *redis.ClusterClient {
	without, nodes := o, o.NewClient
	if nodes == nil {
		nodes = redis.NewClient
	}
	o.NewClient = func(node *redis.Options) *redis.Client {
		if err := Wrap(node, n); err != nil {
			node.Dialer = func(context.Context, string, string) (net.Conn, error) { return nil, err }
		}
		return nodes(node)
	}
	return known(redis.NewClusterClient(&o), origin{n, func() redis.UniversalClient {
		o := without
		return redis.NewClusterClient(&o)
	}})
}

// known notes what is known of a client.
func known[T any](client *T, from origin) *T {
	key := weak.Make(client)
	clients.Store(key, from)
	runtime.AddCleanup(client, func(key weak.Pointer[T]) { clients.Delete(key) }, key)
	return client
}

// Wrap changes the options of a client that is to be made, so that its connections are in a namespace. They must be complete.
func Wrap(o *redis.Options, n Namespace) error {
	if n.IsZero() {
		return nil
	}
	if o.ClientSideCache != nil || o.ClientSideCacheConfig != nil {
		return errors.New("the client caches replies, which it cannot in a namespace: leave out ClientSideCache and ClientSideCacheConfig")
	}
	dial := o.Dialer
	if dial == nil {
		if o.DialTimeout == 0 {
			o.DialTimeout = 5 * time.Second // the default of go-redis, which the dialer would not see
		}
		dial = redis.NewDialer(o)
	}
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return n.on(c)
	}
	return nil
}

// again returns the options of a client for another one. go-redis has put defaults into them, and would take a zero for
// another default.
func again(o redis.Options) redis.Options {
	o.ReadTimeout, o.WriteTimeout = unset(o.ReadTimeout), unset(o.WriteTimeout)
	o.MinRetryBackoff, o.MaxRetryBackoff = unset(o.MinRetryBackoff), unset(o.MaxRetryBackoff)
	o.MaxRetries = int(unset(time.Duration(o.MaxRetries)))
	o.PushNotificationProcessor = nil // of the other client
	return o
}

// unset returns what stands for a value in options: -1 for zero, and -2 for a timeout that is -1.
func unset(value time.Duration) time.Duration {
	switch value {
	case 0:
		return -1
	case -1:
		return -2
	}
	return value
}
