package inspect

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// auditStream is the stream of all depositions, on the Redis of the tasks; mostAudited is about how many entries it
	// keeps.
	auditStream = "railtoken:audit"
	mostAudited = 10_000
)

// Outcome is how far a Depose got.
type Outcome string

// The outcomes. Each Depose has one entry Begun, and one of the others unless its process has died.
const (
	Begun  Outcome = "begun"
	Done   Outcome = "done"
	Failed Outcome = "failed" // the key may have been taken from its holder: Err says how far it got
)

// AuditEntry is one step of a Depose.
type AuditEntry struct {
	At      time.Time // by the clock of Redis
	Outcome Outcome
	Key     string
	Owner   string // the deposed one
	Holder  string // its label
	By, Why string
	Floor   int64  // set for Done, and for Failed if it is known
	Err     string // set for Failed
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
			Outcome: Outcome(text("outcome")), Key: text("key"), Owner: text("owner"), Holder: text("holder"),
			By: text("by"), Why: text("why"), Err: text("error"),
		}
		var ms int64
		_, _ = fmt.Sscanf(m.ID, "%d-", &ms)
		e.At = time.UnixMilli(ms)
		e.Floor, _ = strconv.ParseInt(text("floor"), 10, 64)
		entries = append(entries, e)
	}
	return entries, nil
}

// record adds an entry to the audit.
func (i *Inspector) record(ctx context.Context, e AuditEntry) error {
	values := []any{
		"outcome", string(e.Outcome), "key", e.Key, "owner", e.Owner, "holder", e.Holder, "by", e.By, "why", e.Why,
	}
	if e.Floor > 0 {
		values = append(values, "floor", e.Floor)
	}
	if e.Err != "" {
		values = append(values, "error", e.Err)
	}
	err := i.opts.Tasks.XAdd(ctx, &redis.XAddArgs{
		Stream: auditStream, MaxLen: mostAudited, Approx: true, Values: values,
	}).Err()
	if err != nil {
		return fmt.Errorf("inspect: write the audit: %w", err)
	}
	return nil
}
