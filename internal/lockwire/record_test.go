package lockwire

import (
	"strings"
	"testing"
)

func TestOnlyARecordIsRead(t *testing.T) {
	t.Parallel()
	name := Name("value")
	for text, want := range map[string]struct {
		record Record
		ok     bool
	}{
		"":                              {},
		"short":                         {},
		name:                            {},
		name + "not JSON":               {},
		strings.Repeat("x", nameSize-1): {},
		name + `{"By":"ann","Why":"it hangs","Mark":"m"}`: {Record{By: "ann", Why: "it hangs", Mark: "m"}, true},
		name + `{"By":"ann","Why":"it hangs"}`:            {Record{By: "ann", Why: "it hangs"}, true}, // of an earlier version
	} {
		if got, ok := ParseRecord(text); got != want.record || ok != want.ok {
			t.Errorf("%q is %+v, %v", text, got, ok)
		}
	}
}

func TestARecordLiesBesideItsCounter(t *testing.T) {
	t.Parallel()
	keys, err := KeysOf("order:1", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := RecordKey(keys.Fence, "name"), "railtoken:lock:{order:1}:deposed:name"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
