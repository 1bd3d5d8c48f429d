package locking

import (
	"errors"
	"time"

	"github.com/railtoken/railtoken/internal/quorum"
)

// tokenLimit is above every token: from here on Lua, JavaScript and JSON cannot tell two integers apart. The clock in
// microseconds reaches it in 2255.
const tokenLimit = 1 << 53

// errTokens is why a server's fence counter gives no token.
var errTokens = errors.New("its fence counter has reached 2^53, where tokens are no longer told apart; " +
	"delete the counter, which has the name of the lock and :fence, when what checks the tokens accepts smaller ones")

// see keeps what a clock proposes above the counters of servers. It ignores a counter that is ahead of this machine's
// clock by more than fenceTTL: no clock is so far ahead of another (see [SingleOptions]), so the counter is wrong and
// must not spread to other keys.
func see(clock *quorum.Clock, counters []int64, fenceTTL time.Duration) {
	most := time.Now().Add(fenceTTL).UnixMicro()
	for _, counter := range counters {
		clock.See(counter, most)
	}
}
