package lockwire

import (
	"encoding/base64"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

func TestAnOwnerTellsItsLabelAndTime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 678_999_999, time.UTC)
	for _, label := range []string{"", "host/1/order", "with.dots.in.it", ".", "..", strings.Repeat("é", 100)} {
		for _, block := range []int{1, 2, 16, MaxBlock} {
			value := NewOwner(label, block, now, "")
			got := ParseOwner(value)
			want := Owner{
				Ours: true, Label: label, Since: now.Truncate(time.Millisecond).Local(), Block: int64(block), Mark: value[:16],
			}
			if got != want {
				t.Errorf("of %q at %v for %d tokens remain %+v", label, now, block, got)
			}
		}
	}
}

// The name of its worker is between them.
func TestEveryOwnerHas112BitsOfItsOwn(t *testing.T) {
	t.Parallel()
	now, name, seen := time.Now(), NewName(), map[string]bool{}
	varies := make([]byte, idBytes)
	var first []byte
	for range 1000 {
		random, _, _ := strings.Cut(NewOwner("same label", 1, now, name), ".")
		bits, err := base64.RawURLEncoding.Strict().DecodeString(random)
		if err != nil || len(bits) != 20 {
			t.Fatalf("%q holds %d random bytes (%v), want 20", random, len(bits), err)
		}
		if seen[random] {
			t.Fatalf("two owners have the same bits %q", random)
		}
		seen[random] = true
		if first == nil {
			first = bits
		}
		for i := range bits {
			varies[i] |= bits[i] ^ first[i]
		}
	}
	for i, b := range varies {
		if of := i >= 12 && i < 18; of && b != 0 || !of && b != 0xff {
			t.Errorf("of byte %d only the bits %08b vary", i, b)
		}
	}
}

func TestTheValuesOfOtherProgramsTellNothing(t *testing.T) {
	t.Parallel()
	bits := strings.Repeat("A", IDSize)
	for _, value := range []string{
		"", ".", "..", "random", "a.b.c", "0d9d66ac-9d58-41f9-a8f2-4e2a7c8ee7a0", bits, bits + ".", bits + ".zz",
		bits + "..label", bits + ".not a number.label", bits[1:] + ".zz.label", bits + "A.zz.label", bits[1:] + "!.zz.label",
		bits[1:] + "\n.zz.label", bits + ".zz-.label", bits + ".zz-0.label", bits + ".zz-zzz.label", bits + ".-zz.label",
	} {
		if got := ParseOwner(value); got != (Owner{Block: 1}) {
			t.Errorf("%q tells %+v", value, got)
		}
	}
}

func FuzzParseOwner(f *testing.F) {
	ours := regexp.MustCompile(`(?s)\A[A-Za-z0-9_-]{27}\.[-+]?[0-9A-Za-z]+(-[-+]?[0-9A-Za-z]+)?\.`)
	bits := strings.Repeat("A", IDSize)
	for _, seed := range []string{
		"", "..", bits + ".zz.label", bits + ".-zz.", bits[2:] + "\r\n.0.x", bits + ".zzzzzzzzzzzzzzzzzzzz.x",
		bits + ".1.\n\xff",
		NewOwner("host/1/order", 1, time.Now(), ""), NewOwner("host/1/order", 16, time.Now(), ""), bits + ".zz-0.x",
		bits + ".zz--1.x",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		holder := ParseOwner(value)
		label, since := holder.Label, holder.Since
		if holder.Block < 1 || holder.Block > MaxBlock {
			t.Errorf("%q tells of %d tokens", value, holder.Block)
		}
		if !holder.Ours {
			return
		}
		if !ours.MatchString(value) {
			t.Errorf("%q, which we never write, tells %q since %v", value, label, since)
		}
		if !utf8.ValidString(label) || len(label) > MaxLabel ||
			strings.ContainsFunc(label, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("the label %q is not fit for a log", label)
		}
		if _, err := since.MarshalJSON(); err != nil {
			t.Errorf("the time of %q is not fit for JSON: %v", value, err)
		}
	})
}

func TestARunTellsItsWorker(t *testing.T) {
	t.Parallel()
	name := NewName()
	if a, b := NewRun(name), NewRun(name); a == b || WorkerOfRun(a+".1") != name || WorkerOfRun(b+".500") != name || name == NewName() {
		t.Errorf("the worker %q is not that of %q and %q", name, a, b)
	}
	if of := WorkerOfOwner(NewOwner("host/1/order", 16, time.Now(), name)); of != name {
		t.Errorf("an owner tells the worker %q, want %q", of, name)
	}
	if a, b := NewOwner("", 1, time.Now(), ""), NewOwner("", 1, time.Now(), ""); WorkerOfOwner(a) == WorkerOfOwner(b) {
		t.Errorf("%q and %q tell the same worker", a, b)
	}
	for _, run := range []string{"", "1764275758123456789", NewRun(name), "ABCDEFGHIJKLMNOPQRSTUVWXYZ.1"} {
		if of := WorkerOfRun(run); of != "" {
			t.Errorf("%q is a run of the worker %q", run, of)
		}
	}
	for _, value := range []string{"", "somebody", NewRun(name)} {
		if of := WorkerOfOwner(value); of != "" {
			t.Errorf("%q has the worker %q", value, of)
		}
	}
}
