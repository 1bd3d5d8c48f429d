package locking

import (
	"errors"
	"time"

	"github.com/railtoken/railtoken/internal/quorum"
)

// tokenLimit is larger than every token, because Lua, JavaScript and JSON cannot represent all larger integers. The
// clock in microseconds reaches it in 2255.
const tokenLimit = 1 << 53

// errTokens is the error of a fence counter that has reached tokenLimit.
var errTokens = errors.New("its fence counter has reached 2^53, where tokens are no longer told apart; " +
	"delete the counter, which has the name of the lock and :fence, when what checks the tokens accepts smaller ones")

// see raises a clock to the counters of servers. It ignores a counter that is ahead of this machine's clock by more
// than fenceTTL: because clocks agree within that (see [SingleOptions]), such a counter is wrong, and must not spread
// to other keys.
func see(clock *quorum.Clock, counters []int64, fenceTTL time.Duration) {
	most := time.Now().Add(fenceTTL).UnixMicro()
	for _, counter := range counters {
		clock.See(counter, most)
	}
}
