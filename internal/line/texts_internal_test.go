package line

import (
	"crypto/sha1" //nolint:gosec // as in deaths.go
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// messageOf returns a message as asynq writes it.
func messageOf(id string, deadline, timeout int64) string {
	m := protowire.AppendString(protowire.AppendTag(nil, typeField, protowire.BytesType), "test")
	m = protowire.AppendString(protowire.AppendTag(m, payloadField, protowire.BytesType), "payload")
	m = protowire.AppendString(protowire.AppendTag(m, idField, protowire.BytesType), id)
	m = protowire.AppendVarint(protowire.AppendTag(m, retryField, protowire.VarintType), 25)
	m = protowire.AppendVarint(protowire.AppendTag(m, timeoutField, protowire.VarintType), uint64(timeout))
	m = protowire.AppendVarint(protowire.AppendTag(m, deadlineField, protowire.VarintType), uint64(deadline))
	return string(m)
}

func TestAMessageIsReadAsAsynqWritesIt(t *testing.T) {
	t.Parallel()
	m := messageOf("a", 1_700_000_000, 90)
	kind, timeout, deadline := Described(m)
	if kind != "test" || timeout != 90*time.Second || !deadline.Equal(time.Unix(1_700_000_000, 0)) {
		t.Errorf("%q, %v, %v", kind, timeout, deadline)
	}
	if _, timeout, deadline := Described(messageOf("a", 0, 0)); timeout != 0 || !deadline.IsZero() {
		t.Errorf("without them: %v, %v", timeout, deadline)
	}
	if _, _, deadline := Described(messageOf("a", 1, 0)); !deadline.Equal(time.Unix(1, 0)) {
		t.Errorf("the first second is %v", deadline)
	}
	again := failed(m, 3, 1_700_000_001, "the reason")
	if varintOf(again, retriedField) != 3 || varintOf(again, lastFailedAtField) != 1_700_000_001 ||
		OutlineOf(again) != (Outline{Type: "test", LastErr: "the reason"}) || textOf(again, idField) != "a" {
		t.Errorf("after a failure: %+v, %d times", OutlineOf(again), varintOf(again, retriedField))
	}
	task := taskIn(string(withHeader([]byte(m), "name", "value")))
	if task == nil || task.Type() != "test" || string(task.Payload()) != "payload" || task.Headers()["name"] != "value" {
		t.Errorf("its task is %+v", task)
	}
	for _, broken := range []string{m[:len(m)-1], "\x0f", m + "\x0a"} {
		if taskIn(broken) != nil || textOf(broken, typeField) != "" || varintOf(broken, retryField) != 0 {
			t.Errorf("something is read in %q", broken)
		}
	}
	now := time.Unix(100, 0)
	for deadline, want := range map[int64]bool{0: false, 99: true, 100: true, 101: false} {
		if passed(deadline, now) != want {
			t.Errorf("the deadline %d has passed at 100: %v", deadline, !want)
		}
	}
}

func TestAWaitIsReadAsItIsWritten(t *testing.T) {
	t.Parallel()
	for _, w := range []Wait{
		{Attempt: 1, Deadline: 2, Place: 3, RetryAfter: 4 * time.Millisecond, Keys: []string{"k", "l m"}},
		{Conflict: Conflict{Count: 5, First: time.UnixMicro(1_700_000_000_000_000)}, Place: 1_700_000_000_000_007, Own: true},
		{Place: 1, freed: true},
		{Place: -5, Own: true, freed: true, Keys: []string{"k"}},
	} {
		got := ParseWait(w.String())
		if !got.First.Equal(w.First) || got.Count != w.Count || got.Attempt != w.Attempt || got.Deadline != w.Deadline || got.Place != w.Place ||
			got.RetryAfter != w.RetryAfter || got.Own != w.Own || got.freed != w.freed || !slices.Equal(got.Keys, w.Keys) {
			t.Errorf("%q is read as %+v, want %+v", w, got, w)
		}
	}
	for _, field := range []any{nil, 7, "", "1 2 3 4 5 6", "1 2 3 4 5 6 x"} {
		if w := ParseWait(field); w.Count != 0 || w.Place != 0 || len(w.Keys) != 0 {
			t.Errorf("%v is read as %+v", field, w)
		}
	}
	if w := ParseWait("1 2 3 4 0 6 0"); !w.First.IsZero() || w.Place != 3 {
		t.Errorf("without a first refusal: %+v", w)
	}
	if key, ok := (Wait{}).Key(); ok || key != "" {
		t.Errorf("no key is %q", key)
	}
	if key, ok := (Wait{Keys: []string{"k", "l"}}).Key(); !ok || key != "k" {
		t.Errorf("the first key is %q", key)
	}
}

func TestARecordIsNamedForItsGroupAndKeys(t *testing.T) {
	t.Parallel()
	one := RecordOf("price", []string{"a", "b"})
	if len(one) != 32 || strings.Trim(one, "0123456789abcdef") != "" {
		t.Errorf("its name is %q", one)
	}
	for _, other := range []string{RecordOf("stock", []string{"a", "b"}), RecordOf("price", []string{"a"}), RecordOf("price", []string{"a b"})} {
		if other == one {
			t.Errorf("two records are called %q", one)
		}
	}
	id := "0123abcd-4567-89ab-cdef-0123456789ab"
	for text, want := range map[string]bool{
		id: true, id[1:]: false, id + "0": false, strings.Replace(id, "-", "0", 1): false,
		strings.Replace(id, "a", "g", 1): false, strings.Replace(id, "0", "-", 1): false, strings.Repeat("a", 36): false,
	} {
		if isRandom(text) != want {
			t.Errorf("asynq has made %q: %v", text, !want)
		}
	}
	header := latestHeader(latestKey("q", one), id)
	record, number, ok := readLatest(header, id)
	if !ok || record != "railtoken:latest:{q}:"+one || number != strings.Repeat("0", 16) {
		t.Errorf("%q is read as %q, %q, %v", header, record, number, ok)
	}
	for _, other := range []string{"", id, " " + id, "mine 0 " + id, header + "x"} {
		if _, _, ok := readLatest(other, id); ok {
			t.Errorf("%q is the header of a payload", other)
		}
	}
	if _, _, ok := readLatest(header, "b"); ok {
		t.Error("the header of a task is another one's")
	}
	m := messageOf(id, 0, 0)
	if at := idIn([]byte(m), id); at < 1 || m[at-1:at-1+idSize] != id {
		t.Errorf("the ID is at %d", at)
	}
	if at := idIn([]byte(m), strings.Repeat("b", idSize)); at != 0 {
		t.Errorf("another ID is at %d", at)
	}
	with := string(withHeader([]byte(m), "n", "v"))
	if entry := textOf(with, headersField); textOf(entry, 1) != "n" || textOf(entry, 2) != "v" || !strings.HasPrefix(with, m) {
		t.Errorf("with a header it is %q", with)
	}
}

func TestOfTwoPayloadsTheNumberTellsWhichIsNewer(t *testing.T) {
	t.Parallel()
	const id, other = "0123abcd-4567-89ab-cdef-0123456789ab", "1123abcd-4567-89ab-cdef-0123456789ab"
	of := func(record string, number int, id string) map[string]string {
		return map[string]string{LatestHeader: fmt.Sprintf("%s %016d %s", latestKey("q", record), number, id)}
	}
	for name, tc := range map[string]struct {
		headers, others map[string]string
		newer, known    bool
	}{
		"newer":          {of("a", 10, id), of("a", 9, other), true, true},
		"older":          {of("a", 9, id), of("a", 10, other), false, true},
		"another record": {of("a", 10, id), of("b", 9, other), false, false},
		"no header":      {nil, of("a", 9, other), false, false},
		"passed on":      {of("a", 10, id), of("a", 9, id), false, false},
	} {
		if newer, known := IsNewerPayload(id, tc.headers, other, tc.others); newer != tc.newer || known != tc.known {
			t.Errorf("%s: it is newer: %v, known: %v", name, newer, known)
		}
	}
}

// A task that has run since, or was changed, has not died so often in a row.
func TestDeathsCountUntilATaskRunsAgain(t *testing.T) {
	t.Parallel()
	sum := sha1.Sum([]byte("message|nonce")) //nolint:gosec // as in deaths.go
	text := "3 " + hex.EncodeToString(sum[:8])
	for name, tc := range map[string]struct {
		deaths, message, nonce any
		want                   int
	}{
		"since then nothing": {text, "message", "nonce", 3}, "another run": {text, "message", "next", 0}, "another message": {text, "changed", "nonce", 0},
		"none": {nil, "message", "nonce", 0}, "unreadable": {"x", "message", "nonce", 0},
	} {
		if got := Deaths(tc.deaths, tc.message, tc.nonce); got != tc.want {
			t.Errorf("%s: %d deaths, want %d", name, got, tc.want)
		}
	}
}

func TestNamesAreReadAsTheyAreMade(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "k", "a b", "{x}", "\xff"} {
		if got, ok := KeyOf(Names{}.Waiters(key)); key != "" && (!ok || got != key) {
			t.Errorf("the waiters of %q are those of %q, %v", key, got, ok)
		}
		if got, ok := SequenceOf(Names{}.Sequence(key) + " fifo"); key != "" && (!ok || got != key) {
			t.Errorf("the sequence of %q is that of %q, %v", key, got, ok)
		}
	}
	for _, name := range []string{"", "railtoken:waiters:{", "railtoken:waiters"} {
		if key, ok := KeyOf(name); ok {
			t.Errorf("%q are the waiters of %q", name, key)
		}
	}
	if key, ok := SequenceOf("mine"); ok {
		t.Errorf("%q has a sequence", key)
	}
	all := []string{"a b", "c"}
	if got := decoded(Names{}.encoded(all)); !slices.Equal(got, all) {
		t.Errorf("%q become %q", all, got)
	}
	for _, entry := range []string{"", "1", "x:ab", "-1:ab", "3:ab"} {
		if task, err := ParseEntry(entry); err == nil || taskOf(entry) != (Task{}) {
			t.Errorf("%q is the entry of %v", entry, task)
		}
	}
	if names := (Task{ID: "id"}).listed(); len(names) != 1 { // on a Cluster, they would be in several slots
		t.Errorf("a task that cannot exist has %v", names)
	}
	for _, task := range []Task{{"q", "id"}, {"q", ""}, {"", "id"}} {
		if got, err := ParseEntry(task.Entry()); err != nil || got != task {
			t.Errorf("%v becomes %v, %v", task, got, err)
		}
	}
}

// Two looks fall into the time between two others. What one has found holds for as long as that.
func TestLooksOfAnIdleServerSufficeForAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l idleLooks
		if l.suffice() || !l.due() || l.due() {
			t.Error("the first look is not due once")
		}
		time.Sleep(owedLook/2 - 1)
		if l.due() {
			t.Error("a look is due too early")
		}
		time.Sleep(1 * time.Nanosecond)
		if !l.due() {
			t.Error("the next look is not due")
		}
		l.none()
		time.Sleep(owedLook - 1)
		if !l.suffice() {
			t.Error("it does not suffice that a look has found nothing")
		}
		time.Sleep(1 * time.Nanosecond)
		if l.suffice() {
			t.Error("an old look suffices")
		}
	})
}
