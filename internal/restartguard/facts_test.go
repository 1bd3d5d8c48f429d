package restartguard_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/restartguard"
)

var (
	serverInfo = "# Server\r\nredis_version:7.0.15\r\nrun_id:" + idA +
		"\r\nuptime_in_seconds:123\r\nuptime_in_days:0\r\n"
	replicationInfo = "# Replication\r\nrole:master\r\nmaster_replid:" + idB +
		"\r\nmaster_replid2:" + strings.Repeat("0", 40) + "\r\n"
	memoryInfo = "# Memory\r\nmaxmemory:0\r\nmaxmemory_human:0B\r\nmaxmemory_policy:noeviction\r\n"
)

func TestParseFacts(t *testing.T) {
	t.Parallel()
	f, err := restartguard.ParseFacts(serverInfo, replicationInfo, memoryInfo)
	want := restartguard.Facts{RunID: idA, Role: "master", ReplID: idB, Uptime: 123 * time.Second}
	if err != nil || f != want {
		t.Errorf("facts %+v, error %v; want %+v", f, err, want)
	}
	f, err = restartguard.ParseFacts(
		strings.Replace(serverInfo, ":123", ":-5", 1),
		strings.NewReplacer("master\r", "slave\r", strings.Repeat("0", 40), idC).Replace(replicationInfo),
		strings.NewReplacer("maxmemory:0", "maxmemory:1048576", "noeviction", "allkeys-lru").Replace(memoryInfo))
	want = restartguard.Facts{
		RunID: idA, Role: "slave", ReplID: idB, ReplID2: idC, Uptime: -5 * time.Second,
		MaxMemory: 1 << 20, Policy: "allkeys-lru",
	}
	if err != nil || f != want {
		t.Errorf("facts %+v, error %v; want %+v", f, err, want)
	}
}

func TestParseFactsTakesTheExtremes(t *testing.T) {
	t.Parallel()
	for _, seconds := range []int64{-9223372036, 0, 9223372036} {
		f, err := restartguard.ParseFacts(strings.Replace(serverInfo, ":123", fmt.Sprint(":", seconds), 1), replicationInfo,
			strings.Replace(memoryInfo, "maxmemory:0", "maxmemory:9223372036854775807", 1))
		if err != nil || f.Uptime != time.Duration(seconds)*time.Second || f.MaxMemory != math.MaxInt64 {
			t.Errorf("%d s: facts %+v, error %v", seconds, f, err)
		}
	}
}

func TestParseFactsLooksAtWantedFieldsOnly(t *testing.T) {
	t.Parallel()
	server := serverInfo + "os:a\r\nos:b\r\nos:c"
	if f, err := restartguard.ParseFacts(server, replicationInfo, memoryInfo); err != nil || f.RunID != idA {
		t.Errorf("facts %+v, error %v", f, err)
	}
}

func TestParseFactsTellsOneFaultOnce(t *testing.T) {
	t.Parallel()
	for memory, want := range map[string]string{
		"":                  "INFO does not tell maxmemory",
		"maxmemory:abc\r\n": `INFO says maxmemory:"abc", which is not a number that it can be`,
		"maxmemory:-1\r\n":  `INFO says maxmemory:"-1", which is not a number that it can be`,
	} {
		if _, err := restartguard.ParseFacts(serverInfo, replicationInfo, memory); err == nil || err.Error() != want {
			t.Errorf("%q: error %v, want %s", memory, err, want)
		}
	}
	// Half a reply without an identity is not one of a server that has none.
	if _, err := restartguard.ParseFacts("uptime_in_seconds:12", "", ""); err == nil {
		t.Error("a reply that is cut off has no error")
	}
}

func TestParseFactsKnowsNoServerWithoutRunID(t *testing.T) {
	t.Parallel()
	for _, server := range []string{"", "hello", "run_id:\r\n", "# Server\r\nuptime_in_seconds:1\r\n"} {
		if f, err := restartguard.ParseFacts(server, "", ""); err != nil || f != (restartguard.Facts{}) {
			t.Errorf("INFO server %q: facts %+v, error %v; want none", server, f, err)
		}
	}
}

func TestParseFactsRefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ old, changed, says string }{
		"id not hex":       {idA, strings.Repeat("x", 40), "40 hex digits"},
		"id too short":     {idA, idA[:39], "40 hex digits"},
		"no uptime":        {"uptime_in_seconds:123\r\n", "", "does not tell uptime_in_seconds"},
		"uptime not whole": {":123", ":12.3", "12.3"},
		"uptime too long":  {":123", ":9223372037", "not a number that it can be"},
		"uptime overflow":  {":123", ":99999999999999999999", "not a number that it can be"},
		"no role":          {"role:master\r\n", "", "does not tell role"},
		"no replid":        {"master_replid:" + idB + "\r\n", "", "does not tell master_replid"},
		"no replid2":       {"master_replid2:" + strings.Repeat("0", 40) + "\r\n", "", "does not tell master_replid2"},
		"no maxmemory":     {"maxmemory:0\r\n", "", "does not tell maxmemory"},
		"memory below 0":   {"maxmemory:0", "maxmemory:-1", "maxmemory:\"-1\""},
		"no policy": {
			"maxmemory:0\r\nmaxmemory_human:0B\r\nmaxmemory_policy:noeviction\r\n", "maxmemory:1\r\n",
			"does not tell maxmemory_policy",
		},
		"said twice": {"role:master\r\n", "role:master\r\nrole:slave\r\n", "says role twice"},
		"cut off":    {":123\r\nuptime_in_days:0\r\n", ":12", "cut off at uptime_in_seconds"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			change := func(s string) string { return strings.Replace(s, tt.old, tt.changed, 1) }
			_, err := restartguard.ParseFacts(change(serverInfo), change(replicationInfo), change(memoryInfo))
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %v, want one that says %q", err, tt.says)
			}
		})
	}
}

// No text makes the parser fail in another way than by its error, and no facts are taken from half a reply.
func FuzzParseFacts(f *testing.F) {
	f.Add(serverInfo, replicationInfo, memoryInfo)
	f.Add("run_id:"+idA+"\r\n", "role:", "::\n\r:")
	f.Fuzz(func(t *testing.T, server, replication, memory string) {
		got, err := restartguard.ParseFacts(server, replication, memory)
		if err != nil && got != (restartguard.Facts{}) {
			t.Errorf("facts %+v with the error %v", got, err)
		}
		if got.RunID != "" && (len(got.RunID) != 40 || len(got.ReplID) != 40 || got.Role == "" || got.MaxMemory < 0) {
			t.Errorf("facts %+v without an error", got)
		}
	})
}

func TestFactsCutAnywhereAreNoOthers(t *testing.T) {
	t.Parallel()
	whole, err := restartguard.ParseFacts(serverInfo, replicationInfo, memoryInfo)
	if err != nil {
		t.Fatal(err)
	}
	cut := func(i int, a, b, c string) {
		if f, err := restartguard.ParseFacts(a, b, c); err == nil && f != whole && f.RunID != "" {
			t.Errorf("cut after %d bytes: %+v", i, f)
		}
	}
	for i := range serverInfo {
		cut(i, serverInfo[:i], replicationInfo, memoryInfo)
	}
	for i := range replicationInfo {
		cut(i, serverInfo, replicationInfo[:i], memoryInfo)
	}
	for i := range memoryInfo {
		cut(i, serverInfo, replicationInfo, memoryInfo[:i])
	}
}
