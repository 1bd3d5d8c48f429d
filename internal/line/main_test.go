package line_test

import (
	"os"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/leaktest"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

func TestMain(m *testing.M) { leaktest.Verify(suite{m}) }

// suite stops the servers that the tests share when all of them are done.
type suite struct{ *testing.M }

func (s suite) Run() int {
	code := s.M.Run()
	shared.end()
	return code
}

// servers are started by the first test that needs them: a Cluster takes two seconds to come up.
type servers struct {
	mu      sync.Mutex
	single  *redistest.Server
	cluster *redistest.Cluster
	ends    []func()
}

var shared servers

func (s *servers) clientOf(t *testing.T, kind string) redis.UniversalClient {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if kind == "cluster" && !testing.Short() {
		if s.cluster == nil {
			s.cluster = redistest.StartCluster(&starter{t, s}, 3)
		}
		return s.cluster.Client(t)
	}
	if s.single == nil {
		s.single = redistest.Start(&starter{t, s})
	}
	if kind == "cluster" { // one node in its place does the same steps
		return s.single.AsCluster(t)
	}
	return s.single.Client(t)
}

func (s *servers) end() {
	for i := len(s.ends) - 1; i >= 0; i-- {
		s.ends[i]()
	}
}

// starter is the test that starts the servers. They outlive it.
type starter struct {
	*testing.T
	servers *servers
}

func (s *starter) Cleanup(f func()) { s.servers.ends = append(s.servers.ends, f) }
func (s *starter) Failed() bool     { return false }

func (s *starter) TempDir() string {
	dir, err := os.MkdirTemp("", "delayqueue")
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
