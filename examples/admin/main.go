// Command admin serves two pages side by side: asynqmon, with all tasks and queues, at /asynqmon, and railtoken's admin page, with
// the keys that tasks hold or wait for, at /locks. Both are read-only.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/hibiken/asynqmon"
	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/inspect/admin"
	"github.com/redis/go-redis/v9"
)

func main() {
	addr := flag.String("redis", "127.0.0.1:6379", "address of Redis")
	namespace := flag.String("namespace", "", "namespace of the tasks and locks, as of attach.Options with NamespaceTasks")
	// Neither page knows users: elsewhere than on loopback, put a proxy that authenticates in front.
	listen := flag.String("listen", "127.0.0.1:8080", "address of this server")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", *listen)
	if err == nil {
		log.Printf("http://%[1]s/locks/ and http://%[1]s/asynqmon/", listener.Addr())
		err = serve(ctx, listener, *addr, *namespace)
	}
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// connected has asynqmon use a client that exists, and close it.
type connected struct{ redis.UniversalClient }

func (c connected) MakeRedisClient() any { return c.UniversalClient }

// connect returns a client of the Redis at addr that sees the names of a namespace, or all names if that is empty.
func connect(addr, namespace string) (redis.UniversalClient, error) {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	if namespace == "" {
		return rdb, nil
	}
	defer rdb.Close() // the other one has connections of its own
	return attach.Namespaced(rdb, namespace, true)
}

// serve serves the pages about the Redis at addr until the context ends.
func serve(ctx context.Context, listener net.Listener, addr, namespace string) error {
	rdb, err := connect(addr, namespace)
	if err != nil {
		return err
	}
	defer rdb.Close()
	other, err := connect(addr, namespace)
	if err != nil {
		return err
	}
	tasks := asynqmon.New(asynqmon.Options{RootPath: "/asynqmon", RedisConnOpt: connected{other}, ReadOnly: true})
	defer tasks.Close()
	inspector, err := inspect.New(inspect.Options{Tasks: rdb})
	if err != nil {
		return err
	}
	defer inspector.Close()
	locks, err := admin.New(admin.Options{Tasks: rdb, Inspector: inspector, Prefix: "/locks", TasksURL: "/asynqmon/"})
	if err != nil {
		return err
	}
	defer locks.Close()

	mux := http.NewServeMux()
	mux.Handle("/asynqmon/", tasks)
	mux.Handle("/locks/", locks)
	mux.Handle("/{$}", http.RedirectHandler("/locks/", http.StatusFound))
	server := http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	server.RegisterOnShutdown(locks.Close) // ends the connections of open pages
	stopped := make(chan error, 1)
	context.AfterFunc(ctx, func() { stopped <- server.Shutdown(context.WithoutCancel(ctx)) })
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}
