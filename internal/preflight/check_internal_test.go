package preflight

import (
	"strconv"
	"strings"
	"testing"
)

func TestCheckInfo(t *testing.T) {
	t.Parallel()
	info := func(fields ...string) string { return "# Server\r\n" + strings.Join(fields, "\r\n") + "\r\n" }
	for name, tc := range map[string]struct {
		info    string
		cluster bool
		allow   bool
		parts   []string // none when the Redis is fit
	}{
		"nothing told":           {info: ""},
		"not an INFO":            {info: "hello\nredis_version\n:::\n"},
		"7.2 without a limit":    {info: info("redis_version:7.2.4", "role:master", "maxmemory:0", "maxmemory_policy:allkeys-lru")},
		"6.2":                    {info: info("redis_version:6.2.0", "role:master")},
		"10.0":                   {info: info("redis_version:10.0.1")},
		"a version of its own":   {info: info("redis_version:unstable")},
		"another of its own":     {info: info("redis_version:v5.0")},
		"6.0":                    {info: info("redis_version:6.0.16"), parts: []string{"version 6.0.16", "6.2 or later"}},
		"5":                      {info: info("redis_version:5.9.9"), parts: []string{"version 5.9.9"}},
		"a replica":              {info: info("role:slave"), parts: []string{"is a replica", "address of its master"}},
		"a node of a cluster":    {info: info("cluster_enabled:1"), parts: []string{"node of a Redis Cluster", "RAILTOKEN_REDIS_CLUSTER"}},
		"a cluster, as it says":  {info: info("cluster_enabled:1"), cluster: true},
		"one of two masters":     {info: info("role:active-replica"), parts: []string{"two masters", "turn active-replica off"}},
		"Kvrocks":                {info: info("kvrocks_version:unstable", "redis_version:4.0.0"), parts: []string{"version 4.0.0 (Kvrocks unstable)"}},
		"Dragonfly":              {info: info("redis_version:7.4.0", "dragonfly_version:df-v1.40.1", "role:master")},
		"no cluster":             {info: info("cluster_enabled:0")},
		"a limit, noeviction":    {info: info("maxmemory:1000", "maxmemory_policy:noeviction")},
		"a limit, no policy":     {info: info("maxmemory:1000")},
		"a limit, eviction":      {info: info("maxmemory:1000", "maxmemory_policy:volatile-ttl"), parts: []string{"volatile-ttl", "noeviction"}},
		"eviction allowed":       {info: info("maxmemory:1000", "maxmemory_policy:allkeys-lru"), allow: true},
		"allowed, but a replica": {info: info("role:slave", "maxmemory:1000", "maxmemory_policy:allkeys-lru"), allow: true, parts: []string{"replica"}},
		"all at once": {
			info:  info("redis_version:4.0.0", "role:slave", "maxmemory:1", "maxmemory_policy:allkeys-lru"),
			parts: []string{"version 4.0.0", "replica", "allkeys-lru"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := checkInfo(tc.info, tc.cluster, tc.allow)
			if (err != nil) != (len(tc.parts) > 0) {
				t.Errorf("refused: %v", err)
			}
			for _, part := range tc.parts {
				if err != nil && !strings.Contains(err.Error(), part) {
					t.Errorf("%v does not tell of %q", err, part)
				}
			}
		})
	}
}

func TestOlderThan(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"6.1.9": true, "6.2.0": false, "6.2": false, "5.9": true, "7.0.0": false, "10.1.0": false, "": false, "7": false, "x.y": false,
		strconv.Itoa(1 << 20): false,
	} {
		if got := olderThan(version, 6, 2); got != want {
			t.Errorf("%q is older than 6.2: %t; want %t", version, got, want)
		}
	}
}

func TestServersThatOnlyAnswerAsRedisDoesAreNamed(t *testing.T) {
	t.Parallel()
	for info, want := range map[string]string{
		"redis_version:7.4.0\r\ndragonfly_version:df-v1.40.1\r\n":               "Dragonfly df-v1.40.1",
		"redis_version:4.0.0\r\nkvrocks_version:2.15.0\r\n":                     "Kvrocks 2.15.0",
		"redis_version:6.3.4\r\nexecutable:/usr/bin/keydb-server\r\n":           "KeyDB 6.3.4",
		"redis_version:6.3.4\r\n# KeyDB\r\nmvcc_depth:0\r\n":                    "KeyDB 6.3.4",
		"redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\n": "",
		"redis_version:7.0.15\r\nexecutable:/usr/bin/redis-server\r\n":          "",
	} {
		if got := Untested(ParseInfo(info)); got != want {
			t.Errorf("%q is %q; want %q", info, got, want)
		}
	}
}
