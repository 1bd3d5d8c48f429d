package etcdlock

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/railtoken/railtoken/internal/lockwire"
)

func TestTokensOfRevisionsGrowBelowTheLimit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		revision, token int64
		refused         bool
	}{
		{revision: -1, refused: true},
		{revision: 0, refused: true},
		{revision: 1, token: 256},
		{revision: 2, token: 512},
		{revision: 1<<45 - 1, token: 1<<53 - 256},
		{revision: 1 << 45, refused: true},
		{revision: 1<<63 - 1, refused: true},
	} {
		token, err := tokenOf(tt.revision)
		if token != tt.token || (err != nil) != tt.refused {
			t.Errorf("tokenOf(%d) = %d, %v; want %d, refused: %v", tt.revision, token, err, tt.token, tt.refused)
		}
	}
}

func TestATTLIsRoundedUpToSeconds(t *testing.T) {
	t.Parallel()
	for ttl, want := range map[time.Duration]int64{1: 1, time.Second: 1, time.Second + 1: 2, 30 * time.Second: 30} {
		if got := secondsOf(ttl); got != want {
			t.Errorf("secondsOf(%v) = %d, want %d", ttl, got, want)
		}
	}
}

func TestAValueTellsTheHolder(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	want := holderValue{Label: "host/1\n\x00\xff\"", Since: since, TTL: 30}
	got, ours := parseHolder([]byte(want.encode()))
	if !ours || !got.Since.Equal(since) || got.TTL != 30 || lockwire.CleanLabel(got.Label) != "host/1???\"" {
		t.Errorf("parsed %+v, ours: %v", got, ours)
	}
}

func FuzzHolder(f *testing.F) {
	for _, value := range []string{"", "{}", "null", "[]", `{"label":"a","since":"2026-01-02T03:04:05Z","ttl":30}`, `{"ttl":1e99}`} {
		f.Add([]byte(value))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		v, ours := parseHolder(value)
		if ours && (v.TTL <= 0 || v.Since.IsZero()) || !ours && v != (holderValue{}) {
			t.Errorf("%q is parsed as %+v, ours: %v", value, v, ours)
		}
		if label := lockwire.CleanLabel(v.Label); !utf8.ValidString(label) || len(label) > lockwire.MaxLabel || strings.ContainsAny(label, "\r\n\x00") {
			t.Errorf("the label %q is shown as %q", v.Label, label)
		}
	})
}
