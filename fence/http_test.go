package fence

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/railtoken/railtoken/internal/leasing"
)

// service remembers the largest token, and the operations, of one key.
type service struct {
	mu      sync.Mutex
	seen    int64
	applied map[string]bool
}

func (s *service) claim(_ context.Context, t Token) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := mayClaim(t, s.seen); err != nil {
		return err
	}
	s.seen = t.N
	return nil
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := From(r.Context(), "order:1"); err != nil && r.Method != http.MethodGet {
		Problem(w, err)
		return
	}
	if op := Op(r.Context()); op != "" {
		if s.applied[op] {
			Problem(w, ErrApplied)
			return
		}
		s.applied[op] = true
	}
	_, _ = io.WriteString(w, "done")
}

func serve(t *testing.T) *httptest.Server {
	t.Helper()
	s := &service{applied: map[string]bool{}}
	server := httptest.NewServer(Handler(s, func(r *http.Request) string {
		if r.Method == http.MethodGet {
			return ""
		}
		return "order:1"
	}, s.claim))
	t.Cleanup(server.Close)
	return server
}

// send sends a request through a Transport, and returns the status and the error of the answer.
func send(ctx context.Context, t *testing.T, server *httptest.Server, method string, header http.Header) (int, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, server.URL, strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(r.Header, header)
	response, err := (&http.Client{Transport: Transport{Base: server.Client().Transport}}).Do(r)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	return response.StatusCode, ResponseError(response)
}

func TestServersRefuseEarlierTokens(t *testing.T) {
	t.Parallel()
	server := serve(t)
	under := func(n int64) context.Context {
		return leasing.With(t.Context(), lease{"order:1": n, "warehouse": 5})
	}
	for _, step := range []struct {
		name   string
		ctx    context.Context
		method string
		status int
		err    error
	}{
		{"a first request", under(10), "POST", 200, nil},
		{"another request", under(10), "POST", 200, nil},
		{"a later holder", under(12), "POST", 200, nil},
		{"an earlier holder", under(11), "POST", 412, ErrFenced},
		{"no lease", t.Context(), "POST", 428, ErrNoToken},
		{"another key", leasing.With(t.Context(), lease{"order:2": 99}), "POST", 428, ErrNoToken},
		{"a request that changes nothing", t.Context(), "GET", 200, nil},
		{"an operation", WithOp(under(12), "task-1"), "POST", 200, nil},
		{"the operation in another run", WithOp(under(13), "task-1"), "POST", 409, ErrApplied},
		{"another operation", WithOp(under(13), "task-2"), "POST", 200, nil},
	} {
		if status, err := send(step.ctx, t, server, step.method, nil); status != step.status || !errors.Is(err, step.err) {
			t.Errorf("%s: %d, %v", step.name, status, err)
		}
	}
	if status, err := send(under(-1), t, server, "POST", nil); status != 0 || !errors.Is(err, errLost) {
		t.Errorf("a lost lease: %d, %v", status, err)
	}
}

func TestProblemsTellNoKeys(t *testing.T) {
	t.Parallel()
	for err, status := range map[error]int{
		&FencedError{Key: "secret", Token: 1, Seen: 2}: 412, errors.Join(errors.New("secret"), ErrRetry): 503, errors.New("secret"): 500, invalid("secret"): 400,
	} {
		w := httptest.NewRecorder()
		Problem(w, err)
		if w.Code != status || strings.Contains(w.Body.String(), "secret") || (status == 503) != (w.Header().Get("Retry-After") != "") {
			t.Errorf("%v: %d %s", err, w.Code, w.Body)
		}
	}
}

func FuzzTokenHeader(f *testing.F) {
	own := headerName("k")
	for _, seed := range []string{"", own + "=1", own + "=0", own + "=-1", own + "=+1", own + "=9007199254740992", own + "=1, " + own + "=2", own + "=1,x=2", "=", ",", own, own + "=", "x=1"} {
		f.Add(seed, int64(1))
	}
	f.Fuzz(func(t *testing.T, text string, n int64) {
		tok, err := parseToken(http.Header{TokenHeader: {text}}, "k")
		if err == nil && (tok.validate() != nil || tok.Key != "k") || err != nil && !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrNoToken) {
			t.Errorf("%q: %+v, %v", text, tok, err)
		}
		want := Token{"k", n}
		if want.validate() != nil {
			return
		}
		if got, err := parseToken(http.Header{TokenHeader: {formatTokens([]Token{{"j", 7}, want})}}, "k"); got != want || err != nil {
			t.Errorf("%d comes back as %+v, %v", n, got, err)
		}
	})
}

// A proxy may add parameters to the type of an answer.
func TestAProblemMayComeWithACharset(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	Problem(w, ErrApplied)
	r := w.Result()
	defer r.Body.Close()
	r.Header.Set("Content-Type", r.Header.Get("Content-Type")+"; charset=utf-8")
	if err := ResponseError(r); !errors.Is(err, ErrApplied) {
		t.Errorf("the error is %v", err)
	}
}

func TestARefusalOverHTTPNamesNoKey(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		`fence: a later holder of the lock has claimed the resource: key "k", token 1, the later one is 2`: &FencedError{Key: "k", Token: 1, Seen: 2},
		`fence: a later holder of the lock has claimed the resource: token 1, the later one is 2`:          &FencedError{Token: 1, Seen: 2},
	} {
		if err.Error() != want {
			t.Errorf("got %q, want %q", err, want)
		}
	}
}
