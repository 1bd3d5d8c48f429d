package doctor

import (
	"cmp"
	"context"
	"net"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/locking"
)

const (
	// secondLook is when findings are confirmed that a working system passes through, such as a wake.
	secondLook = time.Second
	// mostLooksForScripts is how many seconds Redis may lack asynq's scripts: after SCRIPT FLUSH or a restart it learns them
	// again when a server of asynq runs them, at least every 8 s.
	mostLooksForScripts = 9
)

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
		if err := pause(ctx, src, found); err != nil {
			return Report{}, err
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

// pause waits until it is time for the second look.
func pause(ctx context.Context, src Sources, found []Finding) error {
	tick := time.NewTicker(secondLook)
	defer tick.Stop()
	for range mostLooksForScripts {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		var now Facts
		if !slices.ContainsFunc(found, func(f Finding) bool { return f.Check == "asynq-scripts" }) ||
			now.gatherScripts(ctx, src.Tasks) == nil && now.Scripts == 0 {
			break
		}
	}
	return nil
}

func (s Settings) withDefaults() Settings {
	s.TaskCheckInterval = cmp.Or(s.TaskCheckInterval, 50*time.Millisecond)
	s.TTL = cmp.Or(s.TTL, locking.DefaultTTL)
	s.MaxHold = cmp.Or(s.MaxHold, locking.DefaultMaxHold)
	s.LongRun = cmp.Or(s.LongRun, 30*time.Second)
	s.MaxWait = cmp.Or(s.MaxWait, 5*time.Minute)
	return s
}
