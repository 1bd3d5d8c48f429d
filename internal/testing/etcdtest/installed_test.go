package etcdtest_test

import (
	"strings"
	"testing"

	"github.com/railtoken/railtoken/internal/testing/etcdtest"
	"github.com/railtoken/railtoken/internal/testing/testserver"
)

var etcd = testserver.Server{
	Name: "etcd", Import: "github.com/railtoken/railtoken/internal/testing/etcdtest", Starters: []string{"Start"},
}

// TestEtcdIsInstalled keeps a plain "go test ./..." from leaving tests out silently.
func TestEtcdIsInstalled(t *testing.T) { etcd.Require(t, etcdtest.Find()) }

func TestTestsThatNeedEtcdAreFoundInEachModule(t *testing.T) {
	t.Parallel()
	root, err := testserver.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	names, err := etcd.Find(root)
	if err != nil {
		t.Fatal(err)
	}
	list := strings.Join(names, "\n")
	for _, want := range []string{"./etcdlock: TestLostRepliesLeaveNoKeyLocked", "./bench/internal/locks: "} {
		if !strings.Contains(list, want) {
			t.Errorf("%q is not among the tests that need etcd:\n%s", want, list)
		}
	}
}
