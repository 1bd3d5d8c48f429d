package holdings

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/leasing"
	"github.com/railtoken/railtoken/internal/lockwire"
)

//go:embed lua/sign.lua
var signSource string

var signScript = redis.NewScript(signSource)

// newID returns the ID of a worker: its name, after how long without a report others may take its runs (s), and random characters.
func newID(opts Options) string {
	return fmt.Sprintf("%s%02d%s", cmp.Or(opts.Name, lockwire.NewName()), int(opts.After.Seconds()), rand.Text())
}

// NameOf returns the name of a worker by its ID: see lockwire.NewName.
func NameOf(id string) string { return id[:min(len(id), lockwire.NameSize)] }

// AfterOf returns after how long without a report others may take the runs of a worker, by its ID; 0 for never. In the ID of an
// earlier version it has no meaning: the runs of such a worker do not tell it.
func AfterOf(id string) time.Duration {
	if len(id) < lockwire.NameSize+2 {
		return 0
	}
	s, err := strconv.ParseUint(id[lockwire.NameSize:lockwire.NameSize+2], 10, 8)
	if err != nil {
		return 0
	}
	return time.Duration(s) * time.Second
}

// Silent returns for how long Redis has had no report of this worker, by the faster of two clocks; 0 before the first one.
func (r *Reporter) Silent() time.Duration {
	if sent := r.sent.Load(); sent != nil {
		return leasing.Since(*sent)
	}
	return 0
}

// Reports reports whether Redis has a report of this worker that is younger than a time.
func (r *Reporter) Reports(age time.Duration) bool {
	return r.sent.Load() != nil && r.Silent() < age
}

// SilentSince reports whether a worker has shown no sign of life since its last one, and has not said goodbye.
func (r *Reporter) SilentSince(ctx context.Context, last Last) (bool, error) {
	now, err := r.client.ZScore(ctx, Workers, last.ID).Result()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return err == nil && int64(now) == last.Clock, err
}

// sign shows a sign of life, and looks at those of the others.
func (r *Reporter) sign(ctx context.Context) error {
	sent := time.Now()
	clock, all, err := readSigns(signScript.Run(ctx, r.client, []string{Workers}, r.id, forgotten.Milliseconds(), recent.Milliseconds(),
		MostWorkers).Slice())
	if err != nil {
		r.life.missed()
		return err
	}
	if r.opts.Lapse > 0 && r.Silent() >= r.opts.Lapse {
		r.opts.Lapsed()
	}
	r.sent.Store(&sent)
	if len(all) > MostWorkers {
		r.life.missed()
		if r.opts.Crowded != nil {
			r.crowded.Do(r.opts.Crowded)
		}
		return nil
	}
	r.life.found(sent, time.Now(), clock, all)
	if r.opts.Looked != nil {
		r.opts.Looked()
	}
	return nil
}

// readSigns reads the reply of sign.lua.
func readSigns(reply []any, err error) (clock int64, all []seen, _ error) {
	if err != nil {
		return 0, nil, err
	}
	if len(reply) != 2 {
		return 0, nil, fmt.Errorf("unexpected script reply: %v", reply)
	}
	now, _ := reply[0].(string)
	signs, _ := reply[1].([]any)
	clock, err = strconv.ParseInt(now, 10, 64)
	for i := 0; i+1 < len(signs); i += 2 {
		id, _ := signs[i].(string)
		text, _ := signs[i+1].(string)
		if at, err := strconv.ParseFloat(text, 64); err == nil {
			all = append(all, seen{id, int64(at)})
		}
	}
	if err != nil {
		return 0, nil, fmt.Errorf("unexpected script reply: %v", reply)
	}
	return clock, all, nil
}
