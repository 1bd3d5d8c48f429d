package admin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/namespace"
)

// Options configures a [Page]. Tasks and Inspector must be set. With zero values for the rest, the page is served at the
// root and changes nothing.
type Options struct {
	// Tasks is a client of the Redis where asynq keeps its tasks, and Inspector looks at it and at the locks. The caller
	// closes them, after the Page. Both have the namespace of the workers, if any: see attach.Namespaced.
	Tasks     redis.UniversalClient
	Inspector *inspect.Inspector
	// Redlock says that the locks are on several independent servers: [inspect.Options].Nodes.
	Redlock bool
	// Prefix is the path at which the page is mounted, such as "/locks", without a slash at its end; the root when empty.
	// The page expects requests with the prefix: do not strip it.
	Prefix string
	// Actions lets the page change something. Without it the page is read-only.
	Actions bool
	// Authorize, if not nil, is called for each request before anything is shown or changed, with the action and the key that
	// it concerns: for a task, once with each key that the task really has, whatever the request says. The key is empty for
	// lists of keys and tasks, and for a task without known keys. An error refuses the request with status 403, is shown, and is
	// recorded in the audit if the request was to change something (at most once a second). It is called concurrently.
	Authorize func(r *http.Request, action inspect.Action, key string) error
	// Operator returns the name of the operator, for the audit; the address of the browser by default.
	Operator func(r *http.Request) string
	// ShowKey returns what is shown in place of a key, for example a hash; the key itself by default. If it is set,
	// addresses of pages and forms contain keys only in encrypted form. Names and types of tasks are shown as they are.
	ShowKey func(key string) string
	// Floor, if not nil, is the Floor of [inspect.Deposition] for a key: it lets the resource refuse the deposed holder.
	Floor func(ctx context.Context, key string, floor int64) error
	// Hosts are the names, without ports, by which the page may be reached. By default every name is accepted, except on
	// connections to loopback addresses, where only loopback names are. Loopback names need not be listed.
	Hosts []string
	// Secret, of at least 32 bytes, lets several processes accept each other's form tokens; random by default.
	Secret []byte
	// TasksURL is the address of a page about asynq's tasks, such as asynqmon, to which this one links.
	TasksURL string
}

// Validate returns an error that lists all problems with the options, or nil.
func (o Options) Validate() error {
	var errs []error
	if o.Tasks == nil {
		errs = append(errs, errors.New("admin: Tasks is nil: give a client of the Redis where asynq keeps its tasks"))
	}
	if o.Inspector == nil {
		errs = append(errs, errors.New("admin: Inspector is nil: give one that inspect.New has returned"))
	}
	if o.Prefix != "" && (!strings.HasPrefix(o.Prefix, "/") || strings.HasSuffix(o.Prefix, "/") || strings.HasPrefix(o.Prefix, "//")) {
		errs = append(errs, errors.New("admin: Prefix must begin with one slash and not end with one, such as /locks"))
	}
	if o.Secret != nil && len(o.Secret) < 32 {
		errs = append(errs, errors.New("admin: Secret is too short: give at least 32 random bytes"))
	}
	if o.Tasks != nil && o.Inspector != nil {
		inspected := namespace.Of((*line.Engine)(o.Inspector.Queue()).Client())
		if has := namespace.Of(o.Tasks); has != inspected {
			errs = append(errs, fmt.Errorf("admin: Tasks has the namespace %q, and the Inspector %q: give both the same client",
				has.Name, inspected.Name))
		}
	}
	return errors.Join(errs...)
}

// Page is the handler of the admin page. It is safe for concurrent use.
type Page struct {
	opts   Options
	mux    *http.ServeMux
	routes []string // of mux, without the prefix
	views  views
	guard  guard
	sealer sealer
	reads  reads
	hub    *hub
	notes  notes

	examiner examiner

	refused atomic.Int64 // when a refusal was last recorded (ms)
}

// New returns a Page. It does not connect. If the options are invalid, it reports all problems in one error.
func New(o Options) (*Page, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	secret := o.Secret
	if secret == nil {
		secret = make([]byte, 32)
		_, _ = rand.Read(secret) // it never fails
	}
	p := &Page{opts: o, mux: http.NewServeMux(), guard: guard{secret: secret, hosts: o.Hosts}, sealer: newSealer(secret)}
	p.reads.entries = map[string]*entry{}
	p.hub = newHub((&watcher{page: p}).fingerprints)
	p.examiner.examine = p.examineAll
	if err := p.parse(); err != nil {
		return nil, err
	}
	p.route()
	return p, nil
}

// Close ends the connections of open pages and the reads that they cause. Pass it to the server's RegisterOnShutdown,
// because Shutdown does not end these connections. Further calls do nothing.
func (p *Page) Close() {
	p.hub.close()
	p.examiner.close()
}

// ServeHTTP serves the page.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	harden(w.Header())
	if err := p.guard.host(r); err != nil {
		http.Error(w, err.Error(), http.StatusMisdirectedRequest)
		return
	}
	if err := receive(w, r); err != nil {
		p.fail(w, r, err)
		return
	}
	p.mux.ServeHTTP(w, r)
}

// route says which function serves which path.
func (p *Page) route() {
	for path, page := range map[string]func(*http.Request) (view, error){
		"/{$}": p.overview, "/keys": p.keys, "/key": p.key, "/waiting": p.waiting, "/task": p.task, "/workers": p.workers,
		"/servers": p.servers, "/archived": p.archived, "/audit": p.audit, "/drop": p.confirmDrop,
		"/cancel": p.confirmCancel, "/replay": p.previewReplay, "/doctor": p.doctor,
	} {
		p.handle(http.MethodGet, path, p.show(page))
	}
	p.handle(http.MethodGet, "/find", p.find)
	p.handle(http.MethodPost, "/find", p.find)
	for _, a := range actions {
		p.handle(http.MethodPost, "/do/"+a.name, p.act(a))
	}
	p.handle(http.MethodGet, "/events", p.events)
	p.handle(http.MethodGet, "/assets/{name}", p.asset)
	if p.opts.Prefix != "" {
		p.handle(http.MethodGet, "", http.RedirectHandler(p.opts.Prefix+"/", http.StatusMovedPermanently).ServeHTTP)
	}
}

func (p *Page) handle(method, path string, serve http.HandlerFunc) {
	p.routes = append(p.routes, method+" "+path)
	p.mux.HandleFunc(method+" "+p.opts.Prefix+path, serve)
}

// notes are messages about what an action has done, until the next page has shown them.
type notes struct {
	mu   sync.Mutex
	ids  []string
	text map[string]string
}

// mostNotes limits how many messages are kept for pages that never ask for them.
const mostNotes = 200

func (n *notes) add(text string) (id string) {
	id = rand.Text()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.text == nil {
		n.text = map[string]string{}
	}
	if len(n.ids) == mostNotes {
		delete(n.text, n.ids[0])
		n.ids = n.ids[1:]
	}
	n.ids = append(n.ids, id)
	n.text[id] = text
	return id
}

func (n *notes) get(id string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text[id]
}
