package locking

import (
	"fmt"
	"time"

	"github.com/railtoken/railtoken/internal/lockwire"
)

// DeposedError is the [LostError].Err of a lease whose key an operator has taken away: see inspect.Inspector.Depose.
// [errors.AsType] finds it in the cause of the lease's context.
//
// A lease of attach.Attached and worker.Worker ends within milliseconds. Any other lease ends with its next renewal,
// within a third of its TTL.
type DeposedError struct{ By, Why string }

// Error says who has deposed the holder, and why.
func (e *DeposedError) Error() string { return fmt.Sprintf("deposed by %s: %s", e.By, e.Why) }

// lostError returns the error of an owner that has lost its lock to another one. It says so if the owner was deposed:
// read returns the record of that, for the fence counter of a key.
func lostError(
	keys []string, redisKeys []string, owner string, cause error, read func(record string) string,
) *LostError {
	name := lockwire.Name(owner)
	for i, key := range keys {
		if r, ok := lockwire.ParseRecord(read(lockwire.RecordKey(redisKeys[3*i+1], name))); ok {
			return &LostError{Keys: []string{key}, Reason: LossDeposed, Err: &DeposedError{By: r.By, Why: r.Why}}
		}
	}
	return &LostError{Keys: keys, Reason: LossTaken, Err: cause}
}

// readTimeout bounds the reading of a record.
const readTimeout = time.Second
