package admin

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/internal/holdings"
	"github.com/railtoken/railtoken/internal/line"
)

// watcher finds what has changed, for as few commands as possible: a page that is told of a change reads the rest.
type watcher struct {
	page    *Page
	reports []inspect.Worker
	readAt  time.Time // of the reports
}

// fingerprints returns a text for each topic. It changes when a page about the topic would show something else, apart from times
// that the page counts itself. Commands is how many a Redis was sent.
func (w *watcher) fingerprints(ctx context.Context, topics []string) (prints map[string]string, commands int) {
	prints = make(map[string]string, len(topics))
	var keys []string
	for _, topic := range topics {
		if key, ok := strings.CutPrefix(topic, keyTopic); ok {
			keys = append(keys, key)
			continue
		}
		prints[topic] = w.ofAll(ctx)
		commands += 2
	}
	if len(keys) == 0 {
		return prints, commands
	}
	inspector := w.page.opts.Inspector
	// Workers report every 5 s. The more there are, the less often their reports are read.
	if age := time.Since(w.readAt); age >= min(time.Duration(len(w.reports)+1)*4*share, holdings.Interval) {
		if reports, err := inspector.Workers(ctx); err == nil {
			w.reports, w.readAt = reports, time.Now()
			commands += 1 + len(reports)
		}
	}
	minute := time.Now().Format(" 15:04") // the charts have a new column
	found, err := inspector.Fingerprints(ctx, keys, mostWaiters)
	commands += 3 * len(keys)
	for i, key := range keys {
		if err != nil {
			prints[keyTopic+key] = "error"
			continue
		}
		prints[keyTopic+key] = found[i] + w.reported(key) + minute
	}
	return prints, commands
}

// reported returns what the workers have reported about a key.
func (w *watcher) reported(key string) string {
	var b strings.Builder
	for _, worker := range w.reports {
		for _, h := range worker.Held {
			if h.Key == key {
				fmt.Fprintf(&b, " %s %s %d", h.Worker, h.Task, h.Since.UnixMilli())
			}
		}
	}
	return b.String()
}

// ofAll returns the fingerprint of all waiting tasks and workers: an entry of the index has a new score after each conflict of its
// task, and one of the workers after each report.
func (w *watcher) ofAll(ctx context.Context) string {
	client := w.page.opts.Tasks
	parked, err := (*line.Engine)(w.page.opts.Inspector.Queue()).Oldest(ctx, mostRead)
	if err != nil {
		return "error"
	}
	reported, err := client.ZRangeWithScores(ctx, holdings.Workers, 0, mostRead-1).Result()
	if err != nil {
		return "error"
	}
	return fmt.Sprint(parked, reported)
}
