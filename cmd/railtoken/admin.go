package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/inspect/admin"
	"github.com/railtoken/railtoken/internal/logsafe"
)

// adminOptions are the flags of admin.
type adminOptions struct {
	listen, tasksURL string
	health           string
	prefix           string
	userHeader       string // of the proxy; empty if there is none
	hosts            []string
	actions, exposed bool
}

func (a *app) adminCommand() *cobra.Command {
	o := adminOptions{listen: "127.0.0.1:8090"}
	c := &cobra.Command{
		Use: "admin", Short: "serve the admin page until Ctrl-C", Args: cobra.NoArgs,
		SuggestFor: []string{"ui", "web", "serve", "dashboard", "page"},
		Long: "admin serves a page that shows keys, holders, waiting tasks, workers, lock servers and archived tasks, and prints its\n" +
			"address. It is read-only unless --allow-actions is given. It knows no users: anyone who can reach it may use it. An\n" +
			"address other than loopback therefore needs --allow-actions-from-anywhere too: use that only\n" +
			"behind a proxy that authenticates. --host names what the proxy calls the page, and --user-header where it says who the\n" +
			"user is. With --hash, keys are shown as hashes.",
		RunE: a.doLong(func(ctx context.Context, _ []string) error { return a.admin(ctx, o) }),
	}
	f := c.Flags()
	f.StringVar(&o.listen, "listen", o.listen, "the `address` to listen on")
	f.BoolVar(&o.actions, "allow-actions", false, "allow depose, wake, put-first, put-last, drop, cancel and replay")
	f.BoolVar(&o.exposed, "allow-actions-from-anywhere", false, "with --allow-actions: allow them although --listen is not a loopback address")
	f.StringSliceVar(&o.hosts, "host", nil, "a host `name` by which the page may be reached, besides loopback names")
	f.StringVar(&o.prefix, "prefix", "", "the `path` at which a proxy serves the page, such as /locks; the proxy must not remove it")
	f.StringVar(&o.userHeader, "user-header", "", "the `header`, such as X-Forwarded-User, in which a proxy names the user, for the audit; the proxy\n"+
		"must remove it from what browsers send. Requests without it are refused")
	f.StringVar(&o.health, "health", "", "only ask whether the admin page at this `address`, such as http://127.0.0.1:8090/, is served, and exit")
	f.StringVar(&o.tasksURL, "tasks-url", "", "the `address` of a page about asynq's tasks, to link to")
	return c
}

// check refuses flags that would let others act, and returns a warning about those that let them look.
func (o adminOptions) check() (warning string, err error) {
	host, _, err := net.SplitHostPort(o.listen)
	if err != nil {
		return "", fmt.Errorf("--listen is %q: give host:port, such as 127.0.0.1:8090", o.listen)
	}
	ip := net.ParseIP(host)
	local := host == "localhost" || ip != nil && ip.IsLoopback()
	switch {
	case o.exposed && !o.actions:
		return "", errors.New("--allow-actions-from-anywhere allows nothing by itself: give --allow-actions too, or leave it out")
	case o.actions && !local && !o.exposed:
		return "", fmt.Errorf("--allow-actions with --listen %s lets everyone in the network take keys away: "+
			"listen on 127.0.0.1, or give --allow-actions-from-anywhere behind a proxy that authenticates", o.listen)
	case o.userHeader != "" && strings.Trim(strings.ToLower(o.userHeader), "abcdefghijklmnopqrstuvwxyz0123456789-_") != "":
		return "", fmt.Errorf("--user-header is %q: give the name of a header, such as X-Forwarded-User", o.userHeader)
	case o.prefix != "" && (!strings.HasPrefix(o.prefix, "/") || strings.HasPrefix(o.prefix, "//") || strings.ContainsAny(o.prefix, "{}?# ")):
		return "", fmt.Errorf("--prefix is %q: give a path that begins with one slash, such as /locks", o.prefix)
	case !local && len(o.hosts) == 0:
		return fmt.Sprintf("--listen %s accepts requests for every host name: name those of this page by --host", o.listen), nil
	}
	return "", nil
}

func (a *app) admin(ctx context.Context, o adminOptions) error {
	if o.health != "" {
		return askPage(ctx, o.health)
	}
	warning, err := o.check()
	if err != nil {
		return err
	}
	options := admin.Options{
		Tasks: a.conn.tasks, Inspector: a.conn.inspector, Redlock: len(a.conn.servers) > 0, Actions: o.actions,
		Hosts: o.hosts, TasksURL: o.tasksURL, Prefix: strings.TrimRight(o.prefix, "/"),
		Operator: func(r *http.Request) string { return whoami() + " (admin page, " + r.RemoteAddr + ")" },
	}
	if o.userHeader != "" {
		options.Authorize = func(r *http.Request, _ inspect.Action, _ string) error {
			_, err := userOf(r, o.userHeader)
			return err
		}
		options.Operator = func(r *http.Request) string {
			user, _ := userOf(r, o.userHeader) // Authorize has seen the error
			return user + " (admin page, " + r.RemoteAddr + ")"
		}
	}
	if a.hash {
		options.ShowKey = func(key string) string { return logsafe.Keys([]string{key})[0] }
	}
	page, err := admin.New(options)
	if err != nil {
		return err
	}
	defer page.Close()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", o.listen, err)
	}
	server := &http.Server{Handler: page, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute}
	server.RegisterOnShutdown(page.Close)
	mode := "read-only"
	if options.Actions {
		mode = "actions allowed"
	}
	a.out.printf("admin page (%s): http://%s%s/\n", mode, strings.Replace(listener.Addr().String(), "[::]", "localhost", 1), options.Prefix)
	if warning != "" {
		a.errOut.printf("warning: %s\n", warning)
	}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		stopped <- server.Shutdown(ending)
	})
	err = server.Serve(listener)
	if stop() { // it was not shut down
		return fmt.Errorf("serve the admin page: %w", err)
	}
	if err := <-stopped; err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("stop the admin page: %w", err)
	}
	return nil
}

// mostUser is the maximum length of a user's name: there must be room for more in the audit.
const mostUser = 200

// userOf returns the user that the proxy has named in a header. A request that has it twice is refused: one of them could be the
// browser's.
func userOf(r *http.Request, header string) (string, error) {
	values := r.Header.Values(header)
	if len(values) != 1 {
		return "", fmt.Errorf("the request has the header %s %d times: the proxy must set it once, and remove what the browser sends", header, len(values))
	}
	user := strings.TrimSpace(values[0])
	if user == "" || len(user) > mostUser {
		return "", fmt.Errorf("the header %s has %d bytes: the proxy must name the user in 1 to %d", header, len(user), mostUser)
	}
	return user, nil
}

// askTimeout is how long --health waits for an answer.
const askTimeout = 4 * time.Second

// askPage returns an error if a page is not served. A page without Redis is served.
func askPage(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	asset, err := url.JoinPath(address, "assets/style.css") // a page that does not ask Redis
	if err != nil {
		return fmt.Errorf("--health is %q: give an address such as http://127.0.0.1:8090/: %w", address, err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, asset, http.NoBody)
	if err != nil {
		return fmt.Errorf("--health is %q: give an address such as http://127.0.0.1:8090/: %w", address, err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // no proxy of the environment
	answer, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("the admin page is not served: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the admin page is not served: %s answers %s", asset, answer.Status)
	}
	return nil
}
