package parking

import (
	"context"
	"errors"
	"testing"

	"github.com/railtoken/railtoken/internal/asynqconn"
	"github.com/railtoken/railtoken/internal/redistest"
)

func TestAnUnknownAsynqEnqueuesPlainlyOrNotAtAll(t *testing.T) {
	t.Parallel()
	q, err := New(redistest.Start(t).Client(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	for _, o := range []EnqueueOptions{{}, {Keys: []string{"k"}}, {AtOnce: true}, {Locks: []string{"l"}}, {WaitFor: "k"}} {
		a := &enqueuing{EnqueueOptions: o}
		cmd := q.answer(context.WithValue(t.Context(), enqueuingKey{}, a), asynqconn.Enqueuing{})
		plain := !o.AtOnce && len(o.Locks) == 0 && o.WaitFor == ""
		if plain != (cmd == nil) || plain != (a.err == nil) || !plain && !errors.Is(cmd.Err(), ErrForeign) {
			t.Errorf("%+v: %v, %v", o, cmd, a.err)
		}
	}
}
