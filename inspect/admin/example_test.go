package admin_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/inspect/admin"
	"github.com/railtoken/railtoken/worker/embeddedredis"
)

// The page is mounted beside other internal pages. Operators may wake tasks and put them first, and nothing else.
func Example() {
	server, err := embeddedredis.Start() // in production: asynq's Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	inspector, err := inspect.New(inspect.Options{Tasks: client})
	if err != nil {
		log.Fatal(err)
	}
	defer inspector.Close()
	page, err := admin.New(admin.Options{
		Tasks: client, Inspector: inspector, Prefix: "/locks", Actions: true,
		Operator: func(r *http.Request) string { return r.Header.Get("X-User") }, // set by a proxy, for the audit
		Authorize: func(_ *http.Request, action inspect.Action, _ string) error {
			switch action {
			case inspect.ActionView, inspect.ActionWake, inspect.ActionPutFirst:
				return nil
			}
			return fmt.Errorf("operators may not %s", action)
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer page.Close()
	mux := http.NewServeMux()
	mux.Handle("/locks/", page)

	answer := httptest.NewRecorder() // in production: http.ListenAndServe("127.0.0.1:8090", mux)
	mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "http://localhost/locks/", http.NoBody))
	fmt.Println(answer.Code)
	// Output: 200
}
