package restartguard

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/leasing"
)

// MarkKey is the Redis key of a server's mark. It vouches for the server to clients that have not watched it themselves:
// "run_id replid ms", where ms is how long a client has watched the process by its own monotonic clock. A mark of
// another process, or of another history, means nothing. So a server that restarts, loses its data, or becomes another
// master has none, even if it has kept this key.
const MarkKey = "railtoken:watched"

// Marked returns the facts with what the server's mark says.
func (f Facts) Marked(mark string) Facts {
	f.Watched = 0
	text, found := strings.CutPrefix(mark, f.Identity()+" ")
	if ms, err := strconv.ParseInt(text, 10, 64); found && f.RunID != "" && err == nil && ms > 0 && ms < int64(leasing.Most/time.Millisecond) {
		f.Watched = time.Duration(ms) * time.Millisecond
	}
	return f
}

// mark records that the server may vote after watched. It is best effort: a client that finds no mark waits.
func mark(ctx context.Context, cn *redis.Conn, f Facts, watched time.Duration) {
	if f.Watched < watched {
		_ = cn.Set(ctx, MarkKey, f.Identity()+" "+strconv.FormatInt(watched.Milliseconds(), 10), 0).Err()
	}
}
