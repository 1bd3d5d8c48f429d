package health

import (
	"context"
	"fmt"
	"net/http"
)

// Handler answers GET and HEAD: 200 if check returns nil, and 503 with its error otherwise.
func Handler(word string, check func(context.Context) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "use GET or HEAD", http.StatusMethodNotAllowed)
			return
		}
		status, text := http.StatusOK, word
		if err := check(r.Context()); err != nil {
			status, text = http.StatusServiceUnavailable, "not "+word+":\n"+err.Error()
		}
		w.WriteHeader(status)
		fmt.Fprintln(w, text) // net/http leaves out the body of an answer to HEAD
	})
}
