package leaktest

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestMain(m *testing.M) { Verify(m) }

func TestAClosedClientsRedialsAreAwaited(t *testing.T) {
	dialed := make(chan struct{}, 1)
	client := redis.NewClient(&redis.Options{
		PoolSize: 1, MaxRetries: -1, DialerRetries: 1,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			if strings.Contains(stacks(), redial) {
				dialed <- struct{}{}
			}
			return nil, errors.New("no server is there")
		},
	})
	if err := client.Ping(t.Context()).Err(); err == nil {
		t.Fatal("a ping without a server was answered")
	}
	<-dialed // it sleeps now
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	awaitRedials(10 * time.Second)
	if strings.Contains(stacks(), redial) {
		t.Error("go-redis still dials")
	}
}
