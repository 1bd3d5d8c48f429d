package worker

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"text/template"

	"github.com/goccy/go-yaml"

	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// The passwords of the tests. The second has a comma, at which a list of addresses is cut.
const (
	password      = "hunter2-is-no-password"
	otherPassword = "open,sesame"
)

// wantNoPassword checks that a text shows no password, also not in hexadecimal and not in parts.
func wantNoPassword(t testing.TB, what, text string) {
	t.Helper()
	for _, secret := range []string{password, otherPassword, "open", "sesame"} {
		if strings.Contains(text, secret) || strings.Contains(strings.ToLower(text), hex.EncodeToString([]byte(secret))) {
			t.Errorf("%s shows a password:\n%s", what, text)
		}
	}
}

func TestSecretDoesNotShowInAnyVerb(t *testing.T) {
	t.Parallel()
	s := Secret(password)
	for _, value := range []any{
		s, &s,
		[]Secret{s},
		map[string]Secret{"password": s},
		struct{ Password Secret }{s},
		Redis{Password: s, SentinelPassword: s},
		Config{Redis: Redis{Addr: "a:1", Password: s}, LockRedis: Redis{Addr: "b:1", SentinelPassword: s}},
	} {
		for _, verb := range []string{
			"%v", "%+v", "%#v", "%s", "%q", "%#q", "%x", "%X", "% x", "%d", "%t", "%c", "%U", "%b", "%o", "%e", "%T", "%40v", "%-40s", "%.99s", "%z",
		} {
			wantNoPassword(t, fmt.Sprintf("%s of a %T", verb, value), fmt.Sprintf(verb, value))
		}
	}
}

func TestSecretSaysThatItIsRedacted(t *testing.T) {
	t.Parallel()
	for verb, want := range map[string]string{
		"%v": redacted, "%+v": redacted, "%s": redacted, "%d": redacted, "%q": `"` + redacted + `"`, "%#v": `"` + redacted + `"`,
	} {
		if got := fmt.Sprintf(verb, Secret(password)); got != want {
			t.Errorf("%s gives %s; want %s", verb, got, want)
		}
	}
	if got := fmt.Sprintf("%v%s%+v", Secret(""), Secret(""), Secret("")); got != "" {
		t.Errorf("an empty secret gives %q; want nothing", got)
	}
}

func TestSecretDoesNotShowInEncodings(t *testing.T) {
	t.Parallel()
	type login struct{ Password Secret }
	value := login{password}
	for name, encode := range map[string]func() ([]byte, error){
		"JSON": func() ([]byte, error) { return json.Marshal(value) },
		"YAML": func() ([]byte, error) { return yaml.Marshal(value) },
		"XML":  func() ([]byte, error) { return xml.Marshal(value) },
		"text": value.Password.MarshalText,
		"a template": func() ([]byte, error) {
			var out bytes.Buffer
			err := template.Must(template.New("").Parse("{{.Password}} {{printf `%d` .Password}}")).Execute(&out, value)
			return out.Bytes(), err
		},
		"slog in text": func() ([]byte, error) {
			var out bytes.Buffer
			slog.New(slog.NewTextHandler(&out, nil)).Info("x", "secret", value.Password, "struct", value)
			return out.Bytes(), nil
		},
		"slog in JSON": func() ([]byte, error) {
			var out bytes.Buffer
			slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "secret", value.Password, "struct", value)
			return out.Bytes(), nil
		},
	} {
		out, err := encode()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		wantNoPassword(t, name, string(out))
		if !strings.Contains(string(out), redacted) {
			t.Errorf("%s does not say that it is redacted: %s", name, out)
		}
	}
}

func TestWorkerShowsNoPassword(t *testing.T) {
	t.Parallel()
	w := idle(t, Config{
		Redis:     Redis{Addr: "127.0.0.1:1", Password: password},
		LockRedis: Redis{Master: "m", Sentinels: []string{"127.0.0.1:2"}, SentinelPassword: otherPassword, Password: password},
	})
	c, err := NewClient(Redis{Addr: "127.0.0.1:1", Password: password})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, verb := range []string{"%v", "%+v", "%#v"} {
		wantNoPassword(t, verb+" of a worker", fmt.Sprintf(verb, w))
		wantNoPassword(t, verb+" of a client", fmt.Sprintf(verb, c))
	}
}

// urls are values that could be mistaken for an address.
var urls = []string{
	"redis://user:" + password + "@127.0.0.1:6379/0",
	"rediss://:" + otherPassword + "@127.0.0.1:6379",
	"unix://user:" + password + "@/run/redis.sock",
	"user:" + password + "@127.0.0.1:6379",
	"redis://127.0.0.1:6379?password=" + password,
	"redis://:x,open,sesame,y@127.0.0.1:6379",
}

func TestURLAsAnAddressShowsNoPassword(t *testing.T) {
	t.Parallel()
	for _, url := range urls {
		for _, at := range []Redis{
			{Addr: url},
			{Master: "m", Sentinels: list(url)},
			{Cluster: list(url + ",127.0.0.1:6380")},
		} {
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
				wantNoPassword(t, verb, fmt.Sprintf(verb, at))
				wantNoPassword(t, verb, fmt.Sprintf(verb, Config{Redis: at, LockRedis: at}))
			}
			_, errClient := NewClient(at)
			_, errNew := New(Config{Redis: at})
			for _, err := range []error{errClient, errNew, Config{Redis: Redis{Addr: "127.0.0.1:1"}, LockRedis: at}.Validate()} {
				wantParts(t, err, "is a URL", "host:port")
				wantNoPassword(t, "the error", err.Error())
			}
		}
	}
}

func TestFromEnvShowsNoPassword(t *testing.T) {
	for _, url := range urls {
		for _, name := range []string{"REDIS_ADDR", "REDIS_CLUSTER", "LOCK_REDIS_ADDR", "LOCK_REDIS_SENTINELS"} {
			t.Run(name, func(t *testing.T) {
				setEnv(t, map[string]string{
					"RAILTOKEN_" + name: url, "RAILTOKEN_REDIS_PASSWORD": password, "RAILTOKEN_REDIS_PASSWROD": password,
					"RAILTOKEN_LOCK_REDIS_SENTINEL_PASSWORD": otherPassword, "RAILTOKEN_REDIS_DB": "first",
				})
				cfg, err := FromEnv()
				wantParts(t, err, "RAILTOKEN_"+name+" is a URL", "RAILTOKEN_REDIS_PASSWROD", "RAILTOKEN_REDIS_DB")
				wantNoPassword(t, "the error", err.Error())
				wantNoPassword(t, "the configuration", fmt.Sprintf("%+v %#v", cfg, cfg))
			})
		}
	}
}

func TestWrongPasswordShowsNoPassword(t *testing.T) {
	t.Parallel()
	const wrong = Secret("wrong-" + password)
	server := redistest.Start(t, "--requirepass", password)
	for name, at := range map[string]Redis{
		"wrong":          {Addr: server.Addr(), Password: wrong},
		"wrong for user": {Addr: server.Addr(), Username: "nobody", Password: wrong},
		"missing":        {Addr: server.Addr()},
	} {
		log, lines := newLines()
		w, err := New(Config{Redis: at, Logger: log})
		if err != nil {
			t.Fatal(err)
		}
		handle(t, w, "audit", nothing)
		err = w.Start(t.Context())
		wantParts(t, err, server.Addr(), "RAILTOKEN_REDIS_ADDR", "password")
		wantNoPassword(t, name+": the error", fmt.Sprintf("%v %+v %#v", err, err, err))
		wantNoPassword(t, name+": the log", lines.all())

		c, err := NewClient(at)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Enqueue(t.Context(), "audit", order{"42"})
		wantParts(t, err, "enqueue", "audit")
		wantNoPassword(t, name+": the error", err.Error())
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}
