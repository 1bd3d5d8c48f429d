package etcdlock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/railtoken/railtoken/etcdlock"
	"github.com/railtoken/railtoken/fence"
	"github.com/railtoken/railtoken/locking"
)

// The child is a holder in a process of its own. Its environment has the endpoint of etcd and the URL of the resources.
const (
	childEtcd = "ETCDLOCK_CHILD_ETCD"
	childURL  = "ETCDLOCK_CHILD_URL"
	sharedKey = "account:7"
)

var stoppable = etcdlock.Options{Prefix: "stopped/"}

// inChild runs the child and reports true in the process of one.
func inChild() bool {
	endpoint := os.Getenv(childEtcd)
	if endpoint == "" {
		return false
	}
	if err := beHolder(endpoint, os.Getenv(childURL)); err != nil {
		fmt.Println("failed:", err)
	}
	return true
}

// beHolder claims the guarded resource, and has its writes ready when it is stopped: it has checked its lease, and will
// not do so again.
func beHolder(endpoint, url string) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer client.Close()
	l, err := etcdlock.New(client, stoppable)
	if err != nil {
		return err
	}
	ctx := context.Background()
	lease, err := l.Acquire(ctx, []string{sharedKey}, locking.Options{TTL: time.Second})
	if err != nil {
		return err
	}
	var sent http.Header
	noting := roundTripper(func(r *http.Request) (*http.Response, error) {
		sent = r.Header
		return http.DefaultTransport.RoundTrip(r)
	})
	status, err := put(locking.NewContext(ctx, lease), fence.Transport{Base: noting}, url+"/guarded", "claimed")
	if err != nil || status != http.StatusOK {
		return fmt.Errorf("the claim is answered %d: %w", status, err)
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	late := roundTripper(func(r *http.Request) (*http.Response, error) {
		r.Header = sent
		return http.DefaultTransport.RoundTrip(r)
	})
	guarded, err := put(ctx, late, url+"/guarded", "late")
	plain, failed := put(ctx, late, url+"/plain", "late")
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	fmt.Println(guarded, plain)
	return nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func put(ctx context.Context, transport http.RoundTripper, url, value string) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, url, strings.NewReader(value))
	if err != nil {
		return 0, err
	}
	resp, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}
