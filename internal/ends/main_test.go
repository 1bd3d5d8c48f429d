package ends_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/ends"
	"github.com/railtoken/railtoken/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Verify(m) }

// redisZ is a mark that others may tell from a time on.
func redisZ(from time.Time, m ends.Mark) redis.Z {
	return redis.Z{Score: float64(from.UnixMilli()), Member: m.String()}
}
