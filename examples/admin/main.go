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

	"github.com/hibiken/asynq"
	"github.com/hibiken/asynqmon"
	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/inspect/admin"
	"github.com/redis/go-redis/v9"
)

func main() {
	addr := flag.String("redis", "127.0.0.1:6379", "address of Redis")
	// Neither page knows users: elsewhere than on loopback, put a proxy that authenticates in front.
	listen := flag.String("listen", "127.0.0.1:8080", "address of this server")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", *listen)
	if err == nil {
		log.Printf("http://%[1]s/locks/ and http://%[1]s/asynqmon/", listener.Addr())
		err = serve(ctx, listener, *addr)
	}
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// serve serves the pages about the Redis at addr until the context ends.
func serve(ctx context.Context, listener net.Listener, addr string) error {
	tasks := asynqmon.New(asynqmon.Options{RootPath: "/asynqmon", RedisConnOpt: asynq.RedisClientOpt{Addr: addr}, ReadOnly: true})
	defer tasks.Close()

	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
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
