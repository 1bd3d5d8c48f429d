package preflight

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/rediswire"
)

// Written is what has become of a write that was tried.
type Written int

// The outcomes of [Write].
const (
	Accepted Written = iota
	Denied           // the user may not write
	Refused          // the server does not write now
)

const (
	// writeTimeout is how long a server may take for a write. A server whose writes are paused answers reads meanwhile.
	writeTimeout = 2 * time.Second
	// mostMoved limits how many keys are tried on a node of a Cluster, which takes only those of its slots.
	mostMoved = 200
)

// Write tries a write on a key of its own, which it deletes, and returns what has become of it. The error is that of the
// server; nil if it has accepted the write.
func Write(ctx context.Context, client *redis.Client) (Written, error) {
	server := client.WithTimeout(writeTimeout)
	for range mostMoved {
		scratch := scratchPrefix + rand.Text()
		err := server.Set(ctx, scratch, "x", time.Second).Err()
		switch {
		case err == nil:
			_ = server.Del(ctx, scratch).Err() // otherwise it expires
			return Accepted, nil
		case rediswire.IsUnserved(err):
			continue
		case rediswire.Says(err, rediswire.NoPerm):
			return Denied, err
		default:
			return Refused, err
		}
	}
	return Accepted, nil // the node has few slots, or none
}

// WriteNear tries a write on the server that has the keys of an asynq queue, with a key of its own, which it deletes. It returns
// why the server refuses to write now; nil if it has accepted the write, or if the user may not write.
func WriteNear(ctx context.Context, client redis.UniversalClient, queue string) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	scratch := scratchPrefix + "{" + queue + "}" + rand.Text()
	err := client.Set(ctx, scratch, "x", time.Second).Err()
	if err == nil {
		_ = client.Del(ctx, scratch).Err() // otherwise it expires
	} else if rediswire.Says(err, rediswire.NoPerm) {
		return nil
	}
	return err
}

// ReadsOnly reports whether a user may read, but not write.
func ReadsOnly(ctx context.Context, client redis.UniversalClient) bool {
	scratch := scratchPrefix + rand.Text()
	if rediswire.Says(client.Get(ctx, scratch).Err(), rediswire.NoPerm) {
		return false
	}
	// The others do nothing with a key that is not there.
	for _, args := range [][]any{{"set", scratch, "x", "XX"}, {"del", scratch}, {"pexpire", scratch, 1}, {"zrem", scratch, "v"}} {
		if !rediswire.Says(client.Do(ctx, args...).Err(), rediswire.NoPerm) {
			return false
		}
	}
	return true
}
