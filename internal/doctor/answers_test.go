package doctor_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/process"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// answers are faults of servers that refuse, or do not answer.
var answers = map[string]fault{
	"a full Redis": {"writes", func(t *testing.T) *system {
		s := newSystem(t)
		s.enqueue("any", "order:1", asynq.Queue("audits"))
		s.abandoned("order:1", 10*time.Second)
		s.set("maxmemory", "1mb")
		return s
	}, []string{"memory is full", "raise maxmemory", "no task is enqueued", "CONFIG SET maxmemory "}, nil},
	"a full lock server": {"writes", func(t *testing.T) *system {
		s := newSystem(t)
		locks := redistest.Start(t, durable...)
		s.src.Locks = locks.Client(t)
		if err := locks.Client(t).ConfigSet(t.Context(), "maxmemory", "1mb").Err(); err != nil {
			t.Fatal(err)
		}
		return s
	}, []string{"memory is full", "no task gets its keys"}, nil},
	"no replicas": {"writes", func(t *testing.T) *system {
		s := newSystem(t)
		s.set("min-replicas-to-write", "1")
		return s
	}, []string{"too few replicas", "min-replicas-to-write"}, nil},
	"writes that are paused": {"writes", func(t *testing.T) *system {
		s := newSystem(t)
		s.do("CLIENT", "PAUSE", 600_000, "WRITE")
		t.Cleanup(s.server.Kill)
		return s
	}, []string{"answers reads, but no write", "CLIENT UNPAUSE"}, nil},
	"a Redis that is paused": {"unreachable", func(t *testing.T) *system {
		s := newSystem(t)
		s.src.Tasks = s.server.Client(t, impatient)
		s.do("CLIENT", "PAUSE", 600_000, "ALL")
		t.Cleanup(s.server.Kill)
		return s
	}, []string{"does not answer", "CLIENT PAUSE"}, nil},
	"a script that does not end": {"unreachable", func(t *testing.T) *system {
		s := newSystem(t)
		s.set("busy-reply-threshold", "1")
		ran := make(chan struct{})
		go func() {
			defer close(ran)
			_ = s.server.Client(t, func(o *redis.Options) { o.ReadTimeout, o.MaxRetries = time.Minute, -1 }).
				Eval(t.Context(), "while true do end", nil).Err() // it is killed
		}()
		t.Cleanup(func() { _ = s.client.ScriptKill(t.Context()).Err(); s.server.Kill(); <-ran })
		s.until(func() bool { return redis.HasErrorPrefix(s.client.Ping(t.Context()).Err(), "BUSY") })
		return s
	}, []string{"BUSY", "SCRIPT KILL"}, nil},
	"a Redis that loads its data": {"unreachable", func(t *testing.T) *system {
		s := newSystem(t, "--appendonly", "yes", "--enable-debug-command", "yes")
		s.do("DEBUG", "POPULATE", 50_000)
		s.set("loading-process-events-interval-bytes", "1024")
		s.set("key-load-delay", "1000") // µs
		loading := make(chan struct{})
		go func() {
			defer close(loading)
			_ = s.server.Client(t, func(o *redis.Options) { o.ReadTimeout, o.MaxRetries = time.Minute, -1 }).
				Do(t.Context(), "DEBUG", "RELOAD").Err() // it ends with the server
		}()
		t.Cleanup(func() { s.server.Kill(); <-loading })
		s.until(func() bool { return redis.HasErrorPrefix(s.client.Ping(t.Context()).Err(), "LOADING") })
		return s
	}, []string{"LOADING", "wait", "INFO persistence"}, nil},
	"too many connections": {"unreachable", func(t *testing.T) *system {
		s := newSystem(t)
		s.set("maxclients", "1")
		s.src.Tasks = s.server.Client(t, impatient)
		return s
	}, []string{"maxclients", "raise"}, nil},
	"a port for TLS": {"unreachable", func(t *testing.T) *system {
		s := newSystem(t)
		addr := s.encrypted()
		s.src.Tasks = s.server.Client(t, impatient, func(o *redis.Options) { o.Addr = addr })
		return s
	}, []string{"expects encrypted connections", "RAILTOKEN_REDIS_TLS=true"}, nil},
	"a port without TLS": {"unreachable", func(t *testing.T) *system {
		s := newSystem(t)
		s.src.Tasks = s.server.Client(t, impatient, func(o *redis.Options) { o.TLSConfig = encrypted })
		return s
	}, []string{"does not encrypt connections", "TLS port"}, nil},
	"a wrong password": {"unreachable", func(t *testing.T) *system {
		s := newSystem(t)
		s.src.Tasks = s.server.Client(t, impatient, func(o *redis.Options) { o.Username, o.Password = "shop", "wrong" })
		return s
	}, []string{"WRONGPASS", "RAILTOKEN_REDIS_PASSWORD"}, nil},
	"a database that does not exist": {"unreachable", func(t *testing.T) *system {
		s := newSystem(t)
		s.src.Tasks = s.server.Client(t, impatient, func(o *redis.Options) { o.DB = 99 })
		return s
	}, []string{"no database of that number", "RAILTOKEN_REDIS_DB"}, nil},
}

func impatient(o *redis.Options) { o.MaxRetries, o.DialerRetries, o.ReadTimeout = -1, 1, time.Second }

// set changes a setting of the Redis of the tasks.
func (s *system) set(name, value string) {
	s.Helper()
	if err := s.client.ConfigSet(s.Context(), name, value).Err(); err != nil {
		s.Fatal(err)
	}
}

// do runs a command on the Redis of the tasks.
func (s *system) do(args ...any) {
	s.Helper()
	if err := s.server.Client(s.T).Do(s.Context(), args...).Err(); err != nil {
		s.Fatal(err)
	}
}

// encrypted gives the Redis of the tasks a port with TLS, and returns its address.
func (s *system) encrypted() string {
	s.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		s.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		s.Fatal(err)
	}
	dir := s.TempDir()
	for name, block := range map[string]*pem.Block{
		"cert.pem": {Type: "CERTIFICATE", Bytes: certificate}, "key.pem": {Type: "EC PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			s.Fatal(err)
		}
	}
	port, err := process.FreePort(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	s.do("CONFIG", "SET", "tls-cert-file", filepath.Join(dir, "cert.pem"), "tls-key-file", filepath.Join(dir, "key.pem"),
		"tls-auth-clients", "no", "tls-port", port)
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	s.until(func() bool {
		conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // its own certificate
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return addr
}
