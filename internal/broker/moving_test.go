package broker

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// errMoving is what a node replies while a slot moves.
const errMoving = replyError("TRYAGAIN Multiple keys request during rehashing of slot")

type replyError string

func (e replyError) Error() string { return string(e) }
func (replyError) RedisError()     {}

// go-redis ends with the answer of the node that its last attempt happened to ask.
func TestAMoveIsWaitedForWhateverTheLastReply(t *testing.T) {
	t.Parallel()
	m, client := redistest.Virtual(t)
	for _, refusal := range []string{
		"TRYAGAIN Multiple keys request during rehashing of slot", "ASK 1 127.0.0.1:1",
		"MOVED 1 127.0.0.1:1",
	} {
		tries := 0
		m.SetError(refusal)
		err := OnceSettled(t.Context(), time.Minute, func() *redis.Cmd {
			tries++
			if tries == 3 {
				m.SetError("")
			}
			return client.Do(t.Context(), "PING")
		}).Err()
		if err != nil || tries != 3 {
			t.Errorf("%s: %v after %d tries", refusal, err, tries)
		}
	}
}
