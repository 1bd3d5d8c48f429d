package lanes_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/rediswire"
)

func of(tb testing.TB, n int) lanes.Lanes {
	tb.Helper()
	l, err := lanes.New(n)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

func TestOnlyPowersOfTwoAreNumbersOfLanes(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 16, 32, 64, 128, 256, 512, 1024} {
		if got := of(t, n).Count(); got != n {
			t.Errorf("%d lanes are %d", n, got)
		}
	}
	for _, n := range []int{-1, 1, 8, 15, 48, 2048, 1 << 40} {
		if _, err := lanes.New(n); err == nil || !strings.Contains(err.Error(), "power of two from 16 to 1024") {
			t.Errorf("%d lanes: %v", n, err)
		}
	}
}

// All that a script touches for a key is in the slot of its lane, and the lanes are spread evenly.
func TestEverythingOfAKeyIsInOneSlot(t *testing.T) {
	t.Parallel()
	for _, n := range []int{16, 64, 1024} {
		l := of(t, n)
		for lane := range n {
			want := 16384 / n * lane
			for _, queue := range []string{"orders", "audit", "", "a b", "ä@3-x", strings.Repeat("q", 200)} {
				pending := asynqwire.Pending(l.Queue(queue, lane))
				if got := rediswire.Slot(pending); got != want {
					t.Fatalf("%d lanes: %q is in slot %d, want %d", n, pending, got, want)
				}
			}
		}
		for _, key := range []string{"order:1042", "", "}", "{a}", "@3-x", "ä b", "%"} {
			for _, name := range []string{"railtoken:lock:{" + l.Encode(key) + "}", "railtoken:lock:{" + l.Encode(key) + "}:fence"} {
				if got, want := rediswire.Slot(name), 16384/n*l.Of(key); got != want {
					t.Errorf("%d lanes: %q is in slot %d, want %d", n, name, got, want)
				}
			}
		}
	}
}

func TestKeysAreReadBackFromTheirNames(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, n := range []int{0, 16, 64} {
		for _, key := range []string{"order:1042", "", "}", "{a}", "@3-x", "@3-x}a", "a:fence", "a", "ä b", "%", "%7D"} {
			encoded := of(t, n).Encode(key)
			if got, ok := rediswire.Decode(encoded); !ok || got != key {
				t.Errorf("%d lanes: %q is read as %q, %v", n, encoded, got, ok)
			}
			if other, ok := seen[encoded]; ok && other != key {
				t.Errorf("%q stands for %q and %q", encoded, key, other)
			}
			seen[encoded] = key
			if strings.ContainsAny(encoded, " \n") {
				t.Errorf("%q cannot be one of several", encoded)
			}
		}
	}
}

func TestQueuesAreReadBackFromTheirNames(t *testing.T) {
	t.Parallel()
	for _, n := range []int{16, 64, 1024} {
		l := of(t, n)
		for _, queue := range []string{"orders", "a@b", "a@3-", "mail@3-0", "", "17-x"} {
			for lane := 0; lane < n; lane += 7 {
				in := l.Queue(queue, lane)
				if base, got, ok := lanes.Split(in); !ok || base != queue || got != lane {
					t.Errorf("%d lanes: %q is read as %q, %d, %v", n, in, base, got, ok)
				}
				if got, ok := l.In(in); !ok || got != lane {
					t.Errorf("%d lanes: %q is in lane %d, %v", n, in, got, ok)
				}
				if lanes.Base(in) != queue || lanes.Base(queue) != queue {
					t.Errorf("%q belongs to %q", in, lanes.Base(in))
				}
			}
		}
	}
	for _, queue := range []string{"orders", "a@", "a@x-1", "a@3", "a@03-x", "a@-1-x", "a@3-x", "a@2000-1", ""} {
		if base, _, ok := lanes.Split(queue); ok || base != queue {
			t.Errorf("%q is taken for %q in a lane", queue, base)
		}
	}
	if _, ok := of(t, 16).In(of(t, 64).Queue("orders", 17)); ok {
		t.Error("lane 17 is one of 16")
	}
	if _, ok := of(t, 0).In(of(t, 64).Queue("orders", 17)); ok {
		t.Error("there are no lanes, and a queue is in one")
	}
}

func TestUnfitQueuesAreRefused(t *testing.T) {
	t.Parallel()
	l := of(t, 64)
	for queue, want := range map[string]string{
		"orders": "", "a b": "", strings.Repeat("q", 200): "", "a@b": "",
		"a{b": "brace", "a}b": "brace", "{a}": "brace", l.Queue("orders", 17): "without its lane", of(t, 16).Queue("orders", 3): "without its lane",
		// Scripts do not know which suffix is that of a lane.
		"mail@48-abc": "named like one in a lane", "a@b@048-Ab0": "named like one in a lane", "@2000-000": "named like one in a lane",
		"mail@48-ab": "", "mail@48-abcd": "", "mail@48abc": "", "mail@-abc": "", "mail@4x-abc": "", "mail@48-ab_": "", "mail@48-abc@": "", "48-abc": "",
	} {
		err := l.Check(queue)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", queue, err, want)
		}
		if err := of(t, 0).Check(queue); err != nil {
			t.Errorf("%q without lanes: %v", queue, err)
		}
	}
}

// Names are stored: they must never change.
func TestNamesStay(t *testing.T) {
	t.Parallel()
	l := of(t, 64)
	got := []string{l.Queue("orders", 17), l.Queue("audit", 17), l.Queue("orders", 63), l.Encode("order:1042")}
	want := []string{"orders@17-1Mk", "audit@17-5B9", "orders@63-00Z", "@21-4VO}order:1042"}
	if !slices.Equal(got, want) {
		t.Errorf("the names are %q, and were %q", got, want)
	}
}

func BenchmarkQueue(b *testing.B) {
	l := of(b, 64)
	for i := 0; b.Loop(); i++ {
		l.Queue("orders", i%64)
	}
}
