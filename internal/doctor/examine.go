package doctor

import (
	"cmp"
	"context"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/locking"
)

// secondLook is when findings are confirmed that a working system passes through: a server of asynq runs each of its
// regular scripts at least every 8 s, but a wake takes milliseconds.
const secondLook = time.Second

// Sources are what [Examine] asks. Tasks is required.
type Sources struct {
	// Tasks is the Redis of the tasks, and Locks that of the locks if it is another one. Nodes are several lock servers.
	Tasks, Locks redis.UniversalClient
	Nodes        []*redis.Client
	// Inspector reads the reports of the workers and the locks; nil leaves them out.
	Inspector *inspect.Inspector
	// Resolve returns the addresses of a host; as the system does when nil.
	Resolve func(ctx context.Context, host string) ([]string, error)
	// Skip names checks that are left out: see [Checks].
	Skip     []string
	Settings Settings
	// Progress is called before each step; nil disables it.
	Progress func(step string)
}

// Examine looks at everything and returns what is wrong. What could not be looked at is in the report, too; the error is
// that of ctx.
func Examine(ctx context.Context, src Sources) (Report, error) {
	src.Settings = src.Settings.withDefaults()
	if src.Progress == nil {
		src.Progress = func(string) {}
	}
	if src.Resolve == nil {
		src.Resolve = net.DefaultResolver.LookupHost
	}
	facts, unchecked := gather(ctx, src)
	found := judge(facts, src.Skip)
	if doubtful(found) {
		src.Progress("looking again")
		timer := time.NewTimer(secondLook)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return Report{}, context.Cause(ctx)
		}
		facts, unchecked = gather(ctx, src)
		found = confirmed(found, judge(facts, src.Skip))
	}
	if err := ctx.Err(); err != nil {
		return Report{}, context.Cause(ctx)
	}
	report := Report{Findings: []Finding{}, Unchecked: []Unchecked{}} // which JSON shows as empty lists
	report.Findings = append(report.Findings, found...)
	report.Unchecked = append(report.Unchecked, unchecked.without(src.Skip)...)
	return report, nil
}

func (s Settings) withDefaults() Settings {
	s.TaskCheckInterval = cmp.Or(s.TaskCheckInterval, 50*time.Millisecond)
	s.TTL = cmp.Or(s.TTL, locking.DefaultTTL)
	s.MaxHold = cmp.Or(s.MaxHold, locking.DefaultMaxHold)
	s.MaxWait = cmp.Or(s.MaxWait, 5*time.Minute)
	return s
}
