package holdings

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// Minutes is how many minutes of the history are read: an hour. Remembered is how long Redis keeps one.
	Minutes    = 60
	remembered = 65 * time.Minute
	// mostKeys is how many keys the history of a minute names: all of it takes less than 2 MB then.
	mostKeys = 300
	// inAll is the field of all keys together, and isLeft is there when a minute does not name all keys.
	inAll, isLeft = "all", "left"
)

//go:embed lua/remember.lua
var rememberSource string

var rememberScript = redis.NewScript(rememberSource)

// HistoryKey returns the name of the history of a minute.
func HistoryKey(at time.Time) string {
	return "railtoken:history:" + at.UTC().Format("2006-01-02T15:04")
}

// fieldOf returns the field of a key: a hash, so that long keys take no more room than short ones.
func fieldOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:8])
}

// Remember adds to the history of a minute what has happened to all keys together and to some of them; left says that there
// were others. It reports whether nobody has told of this minute before.
func Remember(ctx context.Context, client redis.UniversalClient, at time.Time, all Point, keys map[string]Point, left bool) (begun bool, err error) {
	args := []any{remembered.Milliseconds(), mostKeys, ""}
	if left {
		args[2] = "1"
	}
	add := func(field string, p Point) {
		args = append(args, field, p.Waiting, max(p.Oldest, 0).Milliseconds(), p.Holds, p.Wakes, p.Refusals)
	}
	add(inAll, all)
	for key, p := range keys {
		add(fieldOf(key), p)
	}
	begun, err = rememberScript.Run(ctx, client, []string{HistoryKey(at)}, args...).Bool()
	if err != nil {
		err = fmt.Errorf("add to the history: %w", err)
	}
	return begun, err
}

// Minute is what workers have reported of a minute.
type Minute struct {
	At     time.Time
	fields map[string]string
}

// ReadHistory returns the last minutes, at most [Minutes], the current one last. It makes one call, of a command for each.
func ReadHistory(ctx context.Context, client redis.UniversalClient, now time.Time, minutes int) ([]Minute, error) {
	hour := make([]Minute, minutes)
	replies := make([]*redis.MapStringStringCmd, minutes)
	_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for n := range hour {
			hour[n].At = now.Add(time.Duration(n-minutes+1) * time.Minute).Truncate(time.Minute)
			replies[n] = p.HGetAll(ctx, HistoryKey(hour[n].At))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the history: %w", err)
	}
	for n, reply := range replies {
		hour[n].fields = reply.Val()
	}
	return hour, nil
}

// All returns what happened to all keys together; ok is false if no worker has reported.
func (m Minute) All() (p Point, ok bool) { return parsePoint(m.fields[inAll]) }

// Of returns what happened to a key; ok is false if that is not known. A key for which nobody waited is known, except for how often
// it was taken.
func (m Minute) Of(key string) (p Point, ok bool) {
	if p, ok = parsePoint(m.fields[fieldOf(key)]); ok {
		return p, true
	}
	_, reported := m.All()
	_, left := m.fields[isLeft]
	return Point{Holds: -1}, reported && !left
}

// parsePoint reads what remember.lua has written.
func parsePoint(text string) (p Point, ok bool) {
	var ms int64
	n, _ := fmt.Fscan(strings.NewReader(text), &p.Waiting, &ms, &p.Holds, &p.Wakes, &p.Refusals)
	p.Oldest = time.Duration(ms) * time.Millisecond
	return p, n == 5
}
