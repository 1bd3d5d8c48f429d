package etcdlock

import (
	"context"
	"encoding/json"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/railtoken/railtoken/internal/lockwire"
	"github.com/railtoken/railtoken/locking"
)

// holderValue is the value of a lock, so that etcdctl get shows who holds a key.
type holderValue struct {
	Label string    `json:"label"`
	Since time.Time `json:"since"` // by the holder's clock
	TTL   int64     `json:"ttl"`   // in seconds
}

// encode returns the value as it is stored.
func (v holderValue) encode() string {
	encoded, err := json.Marshal(v)
	if err != nil {
		return "{}" // a time after the year 9999
	}
	return string(encoded)
}

// parseHolder returns what the value of a lock says. The value of another program is no JSON, or names no time.
func parseHolder(value []byte) (v holderValue, ours bool) {
	if err := json.Unmarshal(value, &v); err != nil || v.Since.IsZero() || v.TTL <= 0 {
		return holderValue{}, false
	}
	return v, true
}

// held returns the refusal of an attempt by the lock of a key.
func (s *store) held(ctx context.Context, key string, lock *mvccpb.KeyValue) *locking.HeldError {
	v, ours := parseHolder(lock.Value)
	h := locking.Holder{Remaining: s.remaining(ctx, clientv3.LeaseID(lock.Lease), v.TTL)}
	if ours {
		h.Label, h.Since = lockwire.CleanLabel(v.Label), v.Since
		h.Fence, _ = tokenOf(lock.CreateRevision)
	}
	return &locking.HeldError{Key: key, Holder: h}
}

// remaining returns how long a lock lasts at most. etcd tells full seconds, and 0 in the last one. Without an answer it
// is the TTL that the holder has noted.
func (s *store) remaining(ctx context.Context, id clientv3.LeaseID, ttl int64) time.Duration {
	if id == clientv3.NoLease {
		return -1 // no end
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	resp, err := s.client.TimeToLive(ctx, id)
	switch {
	case err != nil:
		return time.Duration(max(ttl, 1)) * time.Second
	case resp.TTL < 0:
		return time.Millisecond // it has ended in the meantime
	case ttl > 0:
		return time.Duration(min(resp.TTL+1, ttl)) * time.Second
	default:
		return time.Duration(resp.TTL+1) * time.Second
	}
}
