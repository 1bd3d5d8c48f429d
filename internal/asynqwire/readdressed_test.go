package asynqwire_test

import (
	"reflect"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/railtoken/railtoken/internal/asynqwire"
)

func TestAMessageIsTheSameInAnotherQueue(t *testing.T) {
	t.Parallel()
	var message []byte
	for number, text := range map[protowire.Number]string{1: "audit", 2: "payload", 3: "id", 4: "orders", 7: "failed", 10: "asynq:{orders}:unique:audit:1"} {
		message = protowire.AppendString(protowire.AppendTag(message, number, protowire.BytesType), text)
	}
	message = protowire.AppendVarint(protowire.AppendTag(message, 5, protowire.VarintType), 25)
	there, ok := asynqwire.Readdressed(string(message), "orders@17-1Mk")
	if !ok {
		t.Fatal("it cannot be read")
	}
	want := asynqwire.ReadMessage(string(message))
	want.Queue = "orders@17-1Mk"
	if got := asynqwire.ReadMessage(there); !reflect.DeepEqual(got, want) {
		t.Errorf("the message is %+v, want %+v", got, want)
	}
	if back, ok := asynqwire.Readdressed(there, "orders"); !ok || back != string(message) {
		t.Errorf("back in its queue it is %q, and was %q", back, message)
	}
	if _, ok := asynqwire.Readdressed(string(message)+"\xff", "other"); ok {
		t.Error("a message is read that has no end")
	}
}
