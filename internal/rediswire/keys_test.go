package rediswire_test

import (
	"strings"
	"testing"

	"github.com/railtoken/railtoken/internal/rediswire"
)

func TestOrdinaryKeysStayReadable(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"order:1042", "seller/9", "A-b_c.d@e", "2e7a8482f6fb09756ca50c10d7bfc047"} {
		if got := rediswire.Encode(key); got != key {
			t.Errorf("Encode(%q) = %q, want it unchanged", key, got)
		}
	}
}

func TestHostileKeysAreEncodedInjectively(t *testing.T) {
	t.Parallel()
	hostile := []string{
		"", "%", "%%", "%25", "{", "}", "{}", "{a}", "a}b", "}{", " ", "\x00", "\r\n", "é", "\xff", "a b", "a%20b",
		strings.Repeat("k", 10_000), strings.Repeat("}", 10_000),
	}
	seen := map[string]string{}
	for _, key := range hostile {
		encoded := rediswire.Encode(key)
		if other, ok := seen[encoded]; ok {
			t.Errorf("%q and %q have the same encoding %q", key, other, encoded)
		}
		seen[encoded] = key
		if encoded == "" || strings.ContainsAny(encoded, "{} \r\n\x00") {
			t.Errorf("Encode(%q) = %q is not fit for a hash tag", key, encoded)
		}
	}
}

func TestSlotFollowsTheClusterSpecification(t *testing.T) {
	t.Parallel()
	// The check value is that of the Redis Cluster specification, the slots are those that CLUSTER KEYSLOT answers.
	for name, want := range map[string]int{
		"123456789":            0x31C3 % 16384,
		"foo":                  12182,
		"user1000":             3443,
		"{user1000}.following": 3443,
		"foo{}{bar}":           8363,
		"foo{{bar}}zap":        4015,
		"foo{bar}{zap}":        5061,
		"a}b{c}":               7365,
		"{}":                   15257,
		"":                     0,
	} {
		if got := rediswire.Slot(name); got != want {
			t.Errorf("Slot(%q) = %d, want %d", name, got, want)
		}
	}
}

func TestNothingButAnEncodingIsDecoded(t *testing.T) {
	t.Parallel()
	for encoded, want := range map[string]string{
		"%": "", "order:1": "order:1", "%7Bx%7D": "{x}", "%25": "%", "a%00": "a\x00",
	} {
		if got, ok := rediswire.Decode(encoded); !ok || got != want {
			t.Errorf("Decode(%q) = %q, %v; want %q", encoded, got, ok, want)
		}
	}
	for _, bad := range []string{"", "%%", "%2", "a%", "%7b", "%41", "%zz", "{x}", "a b", "é", "\x7f"} {
		if got, ok := rediswire.Decode(bad); ok {
			t.Errorf("Decode(%q) = %q, though Encode never returns that", bad, got)
		}
	}
}

func FuzzEncode(f *testing.F) {
	for _, seed := range []string{"", "%", "%41", "order:1", "{x}", "\x00\xff", "a}b{c"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, key string) {
		encoded := rediswire.Encode(key)
		if back, ok := rediswire.Decode(encoded); !ok || back != key {
			t.Fatalf("Decode(Encode(%q)) = %q, %v", key, back, ok)
		}
		name := "railtoken:lock:{" + encoded + "}"
		if rediswire.Tag(name) != encoded {
			t.Fatalf("the hash tag of %q is %q", name, rediswire.Tag(name))
		}
	})
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{"", "%", "%4", "%41", "%7B", "a%", "order:1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, encoded string) {
		if key, ok := rediswire.Decode(encoded); ok && rediswire.Encode(key) != encoded {
			t.Fatalf("%q decodes to %q, which encodes to %q", encoded, key, rediswire.Encode(key))
		}
	})
}
