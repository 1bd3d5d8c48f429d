package admin

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/railtoken/railtoken/delayqueue"
)

const (
	cookieName = "railtoken_admin"
	tokenField = "token"
)

// guard decides which requests are served.
type guard struct {
	secret []byte
	hosts  []string
	origin http.CrossOriginProtection
}

// harden sets the headers that keep other sites out of the page, and the page away from other sites.
func harden(h http.Header) {
	h.Set("Content-Security-Policy",
		"default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'")
	h.Set("X-Frame-Options", "DENY")
	h.Set("X-Content-Type-Options", "nosniff")
	// Not no-referrer: with it, browsers send forms with the origin "null". Other sites get nothing in either case.
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// host refuses requests for names that are not those of the page. It closes the way of DNS rebinding: a foreign site
// whose name resolves to a loopback address is of the same origin as the page in the eyes of the browser.
func (g *guard) host(r *http.Request) error {
	name := r.Host
	if host, _, err := net.SplitHostPort(r.Host); err == nil {
		name = host
	}
	name = strings.ToLower(strings.TrimSuffix(strings.Trim(name, "[]"), "."))
	if isLoopback(name) || slices.ContainsFunc(g.hosts, func(h string) bool { return strings.EqualFold(h, name) }) {
		return nil
	}
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if len(g.hosts) == 0 && (local == nil || !isLoopback(hostOf(local.String()))) {
		return nil
	}
	return errors.New("this host name is not one of the page: use a loopback name such as localhost, or add it to Hosts")
}

func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}

func isLoopback(name string) bool {
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return true
	}
	ip := net.ParseIP(name)
	return ip != nil && ip.IsLoopback()
}

// token returns the token of the browser's forms, and gives the browser a cookie if it has none. The answer to a form
// gives none: a form of another site comes without the cookie, and a new one would end the forms that are open.
func (g *guard) token(w http.ResponseWriter, r *http.Request, path string) string {
	c, err := r.Cookie(cookieName)
	if err != nil || c.Value == "" {
		if r.Method == http.MethodPost {
			return ""
		}
		c = &http.Cookie{ // Lax: a link from another site to the page brings it along
			Name: cookieName, Value: rand.Text(), Path: path, HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: r.TLS != nil,
		}
		http.SetCookie(w, c)
	}
	return g.tokenOf(c.Value)
}

func (g *guard) tokenOf(cookie string) string {
	mac := hmac.New(sha256.New, g.secret)
	mac.Write([]byte("form\x00" + cookie))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

const remedy = "Nothing was changed. Open the page again, and repeat the action there."

const (
	// mostForm limits the size of a form, and formLimit the time until it has arrived.
	mostForm  = 64 << 10
	formLimit = 5 * time.Second
)

// receive reads the form of a request. A body that does not arrive in time ends the connection, under any server: otherwise each
// body that was only begun would keep one.
func receive(w http.ResponseWriter, r *http.Request) error {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(formLimit)) // where it is not supported, the server's own limit counts
	if r.Method != http.MethodPost {
		return nil // nobody reads it
	}
	r.Body = http.MaxBytesReader(w, r.Body, mostForm)
	err := r.ParseForm()
	if of := r.PostForm.Get("of"); err == nil && of != "" { // the one name of the task, whatever the address says
		var t delayqueue.Task
		t, err = taskOfID(of)
		r.Form.Set("queue", t.Queue)
		r.Form.Set("task", t.ID)
	}
	if err == nil {
		_, err = io.Copy(io.Discard, r.Body) // it was not read if it is no form
	}
	if err != nil {
		return &refusal{http.StatusBadRequest, "the form cannot be read: it is malformed, larger than 64 kB, or did not arrive within 5 s", remedy}
	}
	r.Body = http.NoBody
	_ = control.SetReadDeadline(time.Time{}) // all has arrived
	return nil
}

// form refuses a form that does not come from the page itself.
func (g *guard) form(r *http.Request) error {
	if r.Header.Get("Origin") == "" && r.Header.Get("Sec-Fetch-Site") == "" {
		return &refusal{http.StatusForbidden, "the browser does not say where the form comes from", remedy}
	}
	if err := g.origin.Check(r); err != nil {
		return &refusal{http.StatusForbidden, "the form comes from another site", remedy}
	}
	c, err := r.Cookie(cookieName)
	if err != nil || c.Value == "" || !hmac.Equal([]byte(g.tokenOf(c.Value)), []byte(r.PostForm.Get(tokenField))) {
		return &refusal{http.StatusForbidden, "the form has no valid token: it is old, or comes from elsewhere", remedy}
	}
	return nil
}

// refusal is an error with a status of HTTP and what to do about it.
type refusal struct {
	status       int
	text, remedy string
}

// Error returns the cause.
func (e *refusal) Error() string { return e.text }
