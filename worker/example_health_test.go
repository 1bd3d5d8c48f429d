package worker_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/railtoken/railtoken/worker"
	"github.com/railtoken/railtoken/worker/embeddedredis"
)

// A worker serves its probes from an HTTP server of its own.
func ExampleWorker_Ready() {
	redis, err := embeddedredis.Start()
	if err != nil {
		panic(err)
	}
	defer redis.Close()
	w, err := worker.New(worker.Config{Redis: worker.Redis{Addr: redis.Addr()}})
	if err != nil {
		panic(err)
	}
	if err := worker.Handle(w, "audit", worker.Handler[string]{
		Unlocked: true, Run: func(context.Context, string) error { return nil },
	}); err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/readyz", w.Ready())
	mux.Handle("/livez", w.Live())
	probe := func(path string) int {
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, httptest.NewRequestWithContext(context.Background(), http.MethodGet, path, nil))
		return answer.Code
	}
	fmt.Println("before the start:", probe("/readyz"), probe("/livez"))
	if err := w.Start(context.Background()); err != nil {
		panic(err)
	}
	for probe("/readyz") != http.StatusOK {
		time.Sleep(time.Millisecond) // until it has looked for tasks
	}
	fmt.Println("ready:", probe("/readyz"), probe("/livez"))
	if err := w.Shutdown(); err != nil {
		panic(err)
	}
	fmt.Println("after the shutdown:", probe("/readyz"), probe("/livez"))
	// Output:
	// before the start: 503 200
	// ready: 200 200
	// after the shutdown: 503 200
}
