package inspect

import (
	"errors"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/lockwire"
	"github.com/railtoken/railtoken/internal/namespace"
	"github.com/railtoken/railtoken/locking"
)

// Options says where tasks and locks are. Tasks must be set.
type Options struct {
	// Tasks is a client of the Redis where asynq keeps its tasks: that of attach.Namespaced if the workers have a namespace. The
	// caller closes it, after the Inspector.
	Tasks redis.UniversalClient
	// Locks is a client of the Redis of the locks, if they are on a single Redis that is not the Redis of the tasks.
	// The caller closes it, after the Inspector. It has the namespace of the locks, if any.
	Locks redis.UniversalClient
	// Nodes are the servers of a Redlock, if the locks are there, and Redlock are the options that the workers use. The
	// Inspector makes its own clients.
	Nodes   []*redis.Options
	Redlock locking.RedlockOptions
	// RedisKey is the RedisKey of [locking.SingleOptions] that the workers' Locker uses, if any.
	RedisKey func(key string) string
	// Lanes is how many lanes the tasks have, as in attach.Options: 0 for none.
	Lanes int
}

// Validate returns an error that lists all problems with the options, or nil.
func (o Options) Validate() error {
	var errs []error
	if line.IsNil(o.Tasks) {
		errs = append(errs, errors.New("inspect: Tasks is nil: give a client of the Redis where asynq keeps its tasks"))
	}
	if o.Locks != nil && line.IsNil(o.Locks) {
		errs = append(errs, errors.New("inspect: Locks is a nil pointer: leave it out, or give a client"))
	}
	if o.Locks != nil && len(o.Nodes) > 0 {
		errs = append(errs, errors.New("inspect: Locks and Nodes are both set: locks are on one Redis or on several servers"))
	}
	for i, node := range o.Nodes {
		if node == nil {
			errs = append(errs, fmt.Errorf("inspect: node %d has no options", i))
		}
	}
	return errors.Join(append(errs, o.Redlock.Validate())...)
}

// Inspector shows, from outside the workers, what holds keys and which tasks wait for them. It is safe for concurrent
// use.
type Inspector struct {
	opts    Options
	queue   *delayqueue.Queue
	servers []server

	names     line.Names
	usualKeys bool // RedisKey was not set

	mu          sync.Mutex
	closed      bool
	locker      locking.Locker // takes keys away; nil until it is needed
	closeLocker func() error
}

// server is a Redis with locks.
type server struct {
	addr   string
	client redis.UniversalClient
	own    bool
}

// New returns an Inspector. It does not connect. If the options are invalid, it reports all problems in one error.
func New(o Options) (*Inspector, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	queue, err := delayqueue.New(o.Tasks, delayqueue.Options{Lanes: o.Lanes})
	if err != nil {
		return nil, err
	}
	inLanes, err := lanes.New(o.Lanes)
	if err != nil {
		return nil, err
	}
	if o.RedisKey == nil {
		o.RedisKey = o.Redlock.RedisKey
	}
	o.Redlock.RedisKey = o.RedisKey
	i := &Inspector{opts: o, queue: queue, names: line.NamesIn(inLanes), usualKeys: o.RedisKey == nil}
	if i.usualKeys && o.Lanes > 0 && o.Locks == nil && len(o.Nodes) == 0 { // the locks are in the lanes, too
		i.opts.RedisKey = lockwire.LockKeyIn(inLanes)
	}
	for n, node := range o.Nodes {
		opts := nodeOptions(*node)
		in, err := namespace.New(o.Redlock.Namespace, o.Redlock.Namespace != "")
		if err == nil {
			err = namespace.Wrap(&opts, in)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("inspect: node %d: %w", n, err), i.Close())
		}
		i.servers = append(i.servers, server{addr: node.Addr, client: redis.NewClient(&opts), own: true})
	}
	if len(i.servers) == 0 {
		client := o.Locks
		if client == nil {
			client = o.Tasks
		}
		i.servers = []server{{addr: addrOf(client), client: client}}
	}
	return i, nil
}

// Queue returns the queue of waiting tasks, which lists and reorders them.
func (i *Inspector) Queue() *delayqueue.Queue { return i.queue }

// LockServers returns the clients of the servers where the locks are: none if that is the Redis of the tasks. Close closes those
// that New has made.
func (i *Inspector) LockServers() []redis.UniversalClient {
	if len(i.opts.Nodes) == 0 && i.opts.Locks == nil {
		return nil
	}
	clients := make([]redis.UniversalClient, len(i.servers))
	for n, s := range i.servers {
		clients[n] = s.client
	}
	return clients
}

// Close closes what New has created. Further calls do nothing.
func (i *Inspector) Close() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return nil
	}
	i.closed = true
	errs := []error{i.queue.Close()}
	if i.closeLocker != nil {
		errs = append(errs, i.closeLocker())
	}
	for _, s := range i.servers {
		if s.own {
			errs = append(errs, s.client.Close())
		}
	}
	return errors.Join(errs...)
}

// nodeOptions returns the options of the Inspector's client of a lock server. A server that does not answer must not
// hold up what the others say.
func nodeOptions(o redis.Options) redis.Options {
	o.MaxRetries, o.DialerRetries = -1, 1
	o.ContextTimeoutEnabled = true
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = timeout, timeout, timeout, timeout
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = 4, 0, 0, 0
	return o
}

// addrOf returns the address of a client, as far as it has one.
func addrOf(client redis.UniversalClient) string {
	switch c := client.(type) {
	case *redis.Client:
		return c.Options().Addr
	case *redis.ClusterClient:
		if addrs := c.Options().Addrs; len(addrs) > 0 {
			return addrs[0]
		}
	}
	return ""
}

// quorum is how many servers have the lock of a held key.
func (i *Inspector) quorum() int { return len(i.servers)/2 + 1 }

// Lanes returns how many lanes the tasks have, 0 for none.
func (i *Inspector) Lanes() int { return i.opts.Lanes }
