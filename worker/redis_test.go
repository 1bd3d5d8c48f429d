package worker

import (
	"crypto/tls"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestRedisStringNamesTheAddresses(t *testing.T) {
	t.Parallel()
	for want, at := range map[string]Redis{
		"":                                 {},
		"127.0.0.1:6379":                   {Addr: "127.0.0.1:6379", Username: "u", Password: "p", DB: 3},
		"master m of sentinels a:1,b:2":    {Master: "m", Sentinels: []string{"a:1", "b:2"}, SentinelPassword: "p"},
		"cluster a:1,b:2":                  {Cluster: []string{"a:1", "b:2"}, Password: "p"},
		"[redacted]":                       {Addr: "redis://u:p@h:1"},
		"cluster [redacted]":               {Cluster: []string{"a:1", "u:p@h:1"}},
		"master m of sentinels [redacted]": {Master: "m", Sentinels: []string{"redis://h:1"}},
	} {
		if got := at.String(); got != want {
			t.Errorf("%#v is shown as %q; want %q", at, got, want)
		}
	}
}

func TestClientIsOfTheKindThatIsConfigured(t *testing.T) {
	t.Parallel()
	own := &tls.Config{ServerName: "own", MinVersion: tls.VersionTLS13}
	for name, tc := range map[string]struct {
		at   Redis
		want func(redis.UniversalClient) bool
	}{
		"standalone": {
			Redis{Addr: "127.0.0.1:1", Username: "u", Password: "p", DB: 3},
			func(c redis.UniversalClient) bool {
				single, ok := c.(*redis.Client)
				o := single.Options()
				return ok && o.Addr == "127.0.0.1:1" && o.Username == "u" && o.Password == "p" && o.DB == 3 && o.TLSConfig == nil && o.ContextTimeoutEnabled
			},
		},
		"TLS": {
			Redis{Addr: "127.0.0.1:1", TLS: true},
			func(c redis.UniversalClient) bool {
				o := c.(*redis.Client).Options()
				return o.TLSConfig != nil && o.TLSConfig.MinVersion == tls.VersionTLS12 && !o.TLSConfig.InsecureSkipVerify
			},
		},
		"own TLS": {
			Redis{Addr: "127.0.0.1:1", TLS: true, TLSConfig: own},
			func(c redis.UniversalClient) bool { return c.(*redis.Client).Options().TLSConfig.ServerName == "own" },
		},
		"sentinels": {
			Redis{Master: "m", Sentinels: []string{"127.0.0.1:1"}, Password: "p", SentinelPassword: "sp", DB: 2},
			func(c redis.UniversalClient) bool {
				single, ok := c.(*redis.Client)
				return ok && single.Options().Addr == "FailoverClient" && single.Options().Password == "p" && single.Options().DB == 2
			},
		},
		"cluster with one node": {
			Redis{Cluster: []string{"127.0.0.1:1"}, Password: "p"},
			func(c redis.UniversalClient) bool {
				cluster, ok := c.(*redis.ClusterClient)
				return ok && len(cluster.Options().Addrs) == 1 && cluster.Options().Password == "p"
			},
		},
	} {
		if err := tc.at.validate("REDIS"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		c, _, err := tc.at.client()
		if err != nil {
			t.Fatal(err)
		}
		if !tc.want(c) {
			t.Errorf("%s: the client is a %T with other options than those asked for", name, c)
		}
		if err := c.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
