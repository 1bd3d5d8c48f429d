package line

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/holdings"
)

// supersedeChannel is the channel in which tasks ask the runs that hold their keys to stop. The message names the task, and its hash says
// what counts: whether it still waits, and since when. A message that is lost is sent again when the task is refused again.
const supersedeChannel = "railtoken:supersede"

// supersessionMessage is the message. Names may be of any bytes.
type supersessionMessage struct {
	Keys  [][]byte `json:"keys"`
	Group []byte   `json:"group"`
	By    []byte   `json:"by"`
	Grace int64    `json:"grace"` // ms
}

// TellHolders asks the runs that hold one of the keys to stop, whichever attached process they are in. It makes one call to Redis.
func (e *Engine) TellHolders(ctx context.Context, s holdings.Supersession) error {
	m := supersessionMessage{Group: []byte(s.Group), By: []byte(Task{s.Queue, s.ID}.Entry()), Grace: s.Grace.Milliseconds()}
	for _, key := range s.Keys {
		m.Keys = append(m.Keys, []byte(key))
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return e.client.Publish(ctx, supersedeChannel, text).Err()
}

// followSupersessions has the runs of this process learn of supersessions until the Engine is closed.
func (e *Engine) followSupersessions() {
	_, _ = e.messages.Follow(supersedeChannel, func(text string) {
		var m supersessionMessage
		if json.Unmarshal([]byte(text), &m) != nil {
			return
		}
		by := taskOf(string(m.By))
		s := holdings.Supersession{Group: string(m.Group), Queue: by.Queue, ID: by.ID, Grace: time.Duration(m.Grace) * time.Millisecond}
		for _, key := range m.Keys {
			s.Keys = append(s.Keys, string(key))
		}
		// These first: a run that begins after the task is over is none of them.
		held := e.held.Of(s.Keys)
		if len(held) == 0 {
			return
		}
		e.background(e.closing, followUpLimit, func(ctx context.Context) {
			if err := e.carryOut(ctx, s, held); err != nil {
				e.log.WarnContext(ctx, "a run could not be told that it is superseded; it is told again within seconds", "error", err)
			}
		})
	}) // it fails once the Engine is closed
}

// carryOut tells runs of this process of a task that is to take their place, if there is such a task that has not ended.
func (e *Engine) carryOut(ctx context.Context, s holdings.Supersession, held []holdings.Holding) error {
	by := Task{s.Queue, s.ID}
	fields, err := e.client.HMGet(ctx, by.Hash(), asynqwire.StateField, WaitField, asynqwire.MessageField, sinceField).Result()
	if err != nil {
		return err
	}
	state, _ := fields[0].(string)
	message, _ := fields[2].(string)
	task, wait := taskIn(message), ParseWait(fields[1])
	attempt := int(varintOf(message, retriedField))
	parked := state == "retry" && wait.Count > 0 && wait.Attempt == attempt
	if task == nil || !parked && state != "pending" && state != "active" {
		return nil
	}
	s.Since, s.Headers = sinceOf(fields[3]), task.Headers()
	still := e.held.Of(s.Keys)
	for _, h := range held {
		holds := slices.ContainsFunc(still, func(other holdings.Holding) bool { return other.Holder == h.Holder && other.Lease == h.Lease })
		if holds && h.Holder != nil && (h.Queue != s.Queue || h.ID != s.ID) {
			h.Holder.Supersede(s, h.Lease)
		}
	}
	return nil
}

// IsNewerPayload reports whether a task has a later payload than another one of which only the latest is to run, by their headers. known
// is false if that does not hold for both of them.
func IsNewerPayload(id string, headers map[string]string, other string, others map[string]string) (newer, known bool) {
	record, number, ok := readLatest(headers[LatestHeader], id)
	otherRecord, otherNumber, otherOK := readLatest(others[LatestHeader], other)
	known = ok && otherOK && record == otherRecord
	return known && number > otherNumber, known
}
