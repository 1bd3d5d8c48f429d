package inspect

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/rediswire"
)

const (
	// auditStream is the stream of what operators have done, on the Redis of the tasks; mostAudited is about how many
	// entries it keeps.
	auditStream = "railtoken:audit"
	mostAudited = 10_000
)

// Action is what an operator does.
type Action string

// The actions of `railtoken` and of the admin page, as the audit names them and as Options.Authorize of the page is asked
// about them. ActionView is every request to the page that changes nothing; the audit has none.
const (
	ActionView     Action = "view"
	ActionDepose   Action = "depose"
	ActionWake     Action = "wake"
	ActionPutFirst Action = "put-first"
	ActionPutLast  Action = "put-last"
	ActionDrop     Action = "drop"
	ActionCancel   Action = "cancel"
	ActionReplay   Action = "replay"
	ActionMove     Action = "move"  // of a queue into lanes; the page has none
	ActionPause    Action = "pause" // of a queue; the page has none
	ActionUnpause  Action = "unpause"
)

// Outcome is how far an action got.
type Outcome string

// The outcomes. Each action that is allowed has one entry Begun, and Done or Failed unless its process has died.
const (
	Begun Outcome = "begun"
	Done  Outcome = "done"
	// Refused is the only entry of an action that its operator was not allowed: nothing was begun.
	Refused Outcome = "refused"
	Failed  Outcome = "failed" // of a Depose, the key may have been taken from its holder: Err says how far it got
)

// AuditEntry is one step of an action.
type AuditEntry struct {
	At      time.Time // by the clock of Redis
	Action  Action
	Outcome Outcome
	Key     string          // empty if the action concerns no single key
	Task    delayqueue.Task // zero if it concerns no task; without an ID if it concerns tasks of the queue
	Owner   string          // the deposed one
	Holder  string          // its label
	By, Why string
	Floor   int64  // of a Depose: set for Done, and for Failed if it is known
	Result  string // of other actions: set for Done
	Err     string // set for Failed and Refused
}

// Audit returns the last n entries of the audit, at most about 10 000, the newest first.
func (i *Inspector) Audit(ctx context.Context, n int) ([]AuditEntry, error) {
	if n <= 0 {
		return nil, nil
	}
	found, err := i.opts.Tasks.XRevRangeN(ctx, auditStream, "+", "-", int64(min(n, 2*mostAudited))).Result()
	if err != nil {
		return nil, fmt.Errorf("inspect: read the audit: %w", err)
	}
	entries := make([]AuditEntry, 0, len(found))
	for _, m := range found {
		text := func(field string) string {
			value, _ := m.Values[field].(string)
			return value
		}
		e := AuditEntry{
			Action: Action(text("action")), Outcome: Outcome(text("outcome")),
			Key: text("key"), Task: delayqueue.Task{Queue: text("queue"), ID: text("task")},
			Owner: text("owner"), Holder: text("holder"), By: text("by"), Why: text("why"),
			Result: text("result"), Err: text("error"),
		}
		if e.Action == "" { // of a version that audited nothing else
			e.Action = ActionDepose
		}
		var ms int64
		_, _ = fmt.Sscanf(m.ID, "%d-", &ms)
		e.At = time.UnixMilli(ms)
		e.Floor, _ = strconv.ParseInt(text("floor"), 10, 64)
		entries = append(entries, e)
	}
	return entries, nil
}

// Steering is what an operator does to waiting or archived tasks, for the audit. Action and By must be set, and Key,
// Task or both; a Task without an ID stands for tasks of its queue. [Inspector.Depose] and [Inspector.Cancel] have audits of their own.
type Steering struct {
	Action  Action
	Key     string
	Task    delayqueue.Task
	By, Why string // at most 500 bytes each
}

// Validate returns an error that lists all problems with the steering, or nil.
func (s Steering) Validate() error {
	var errs []error
	if s.Action == "" {
		errs = append(errs, errors.New("inspect: Action is empty"))
	}
	if s.Key == "" && s.Task.Queue == "" {
		errs = append(errs, errors.New("inspect: Key and Task are empty: say what the action is on"))
	}
	return errors.Join(append(errs, operatorFaults(s.By, s.Why)...)...)
}

// operatorFaults returns what is wrong with who acts, and why.
func operatorFaults(by, why string) (errs []error) {
	if by == "" || len(by) > mostText {
		errs = append(errs, fmt.Errorf("inspect: By has %d bytes: it must have 1 to %d", len(by), mostText))
	}
	if len(why) > mostText {
		errs = append(errs, fmt.Errorf("inspect: Why has %d bytes: it must have at most %d", len(why), mostText))
	}
	return errs
}

// Audited calls do, and records in the audit who does it: first that it has begun, then the result of do, or that it has
// failed. It returns the error of do. If the audit cannot be written at the beginning, do is not called. If it cannot be
// written at the end, the error says so, and the effects of do remain.
func (i *Inspector) Audited(ctx context.Context, s Steering, do func(ctx context.Context) (result string, err error)) error {
	if err := s.Validate(); err != nil {
		return err
	}
	return i.audited(ctx, AuditEntry{Action: s.Action, Key: s.Key, Task: s.Task, By: s.By, Why: s.Why}, func(e *AuditEntry) error {
		var err error
		e.Result, err = do(ctx)
		return err
	})
}

// AuditRefusal records that an operator was refused an action, and why.
func (i *Inspector) AuditRefusal(ctx context.Context, s Steering, why string) error {
	if err := s.Validate(); err != nil {
		return err
	}
	return i.record(ctx, AuditEntry{Action: s.Action, Outcome: Refused, Key: s.Key, Task: s.Task, By: s.By, Why: s.Why, Err: why})
}

// audited records an entry, calls do, which may add to it, and records how it ended.
func (i *Inspector) audited(ctx context.Context, e AuditEntry, do func(e *AuditEntry) error) error {
	e.Outcome = Begun
	if err := i.record(ctx, e); err != nil {
		return err
	}
	err := do(&e)
	e.Outcome = Done
	if err != nil {
		e.Outcome, e.Result, e.Err = Failed, "", err.Error()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finish)
	defer cancel()
	return errors.Join(err, i.record(ctx, e))
}

// record adds an entry to the audit.
func (i *Inspector) record(ctx context.Context, e AuditEntry) error {
	values := []any{"action", string(e.Action), "outcome", string(e.Outcome), "by", e.By}
	for _, field := range []struct{ name, value string }{
		{"why", e.Why},
		{"key", e.Key},
		{"queue", e.Task.Queue},
		{"task", e.Task.ID},
		{"owner", e.Owner},
		{"holder", e.Holder},
		{"result", e.Result},
		{"error", e.Err},
	} {
		if field.value != "" {
			values = append(values, field.name, field.value)
		}
	}
	if e.Floor > 0 {
		values = append(values, "floor", e.Floor)
	}
	err := i.opts.Tasks.XAdd(ctx, &redis.XAddArgs{
		Stream: auditStream, MaxLen: mostAudited, Approx: true, Values: values,
	}).Err()
	switch {
	case err == nil:
		return nil
	case rediswire.IsRefusal(err) && !rediswire.IsUnrun(err):
		return fmt.Errorf("inspect: write the audit: the Redis of the tasks refuses writes, and railtoken doctor says what to do: %w", err)
	default:
		return fmt.Errorf("inspect: write the audit: %w", err)
	}
}
