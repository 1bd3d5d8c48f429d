package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/parking"
	"github.com/railtoken/railtoken/middleware"
)

// archivedTask is a task in asynq's archive. Its payload is not kept.
type archivedTask struct {
	Task     delayqueue.Task
	Type     string
	At       time.Time
	Key      string // set if it was archived because of a conflict
	Because  string // the limit that was reached, held, or other
	Text     string // the error of its last run, for another cause
	Conflict *middleware.ConflictError
}

// choice says which archived tasks are meant.
type choice struct {
	Queue, Because string
	Key            string
}

func (c choice) matches(t archivedTask) bool {
	return (c.Because == "" || c.Because == t.Because) && (c.Key == "" || c.Key == t.Key)
}

// causes are those by which archived tasks can be chosen.
var causes = []string{"conflicts", "age", "waiters", "total", "held", "other"}

func (p *Page) choiceOf(r *http.Request) (choice, error) {
	c := choice{Queue: r.FormValue("queue"), Because: r.FormValue("because")}
	if c.Because != "" && !slices.Contains(causes, c.Because) {
		return c, &refusal{http.StatusBadRequest, "there is no such cause", "Choose one in the list of dead letters."}
	}
	var err error
	c.Key, err = p.keyIfAny(r)
	return c, err
}

// archivedOf returns what is shown of an archived task.
func archivedOf(info *asynq.TaskInfo) archivedTask {
	t := archivedTask{
		Task: delayqueue.Task{Queue: info.Queue, ID: info.ID}, Type: info.Type, At: info.LastFailedAt, Because: "other", Text: info.LastErr,
	}
	if c, err := middleware.ParseConflict(info.Result); err == nil {
		t.Conflict, t.Key, t.Because = c, c.Key, cmp.Or(string(c.Limit), "held")
	}
	return t
}

// listArchived returns the archived tasks that are meant, in asynq's order: at most mostRead.
func (p *Page) listArchived(ctx context.Context, c choice) ([]archivedTask, error) {
	name := fmt.Sprintf("archived:%q %q %q", c.Queue, c.Because, c.Key)
	return read(ctx, &p.reads, name, func(ctx context.Context) ([]archivedTask, error) {
		var found []archivedTask
		_, err := p.opts.Inspector.Queue().Inspector().ReplayAll(ctx, c.Queue, mostRead, func(info *asynq.TaskInfo) bool {
			if t := archivedOf(info); c.matches(t) {
				found = append(found, t)
			}
			return false // they are only listed
		})
		if errors.Is(err, asynq.ErrQueueNotFound) {
			return nil, &refusal{http.StatusNotFound, "asynq knows no such queue", "Choose a queue in the list of dead letters."}
		}
		return found, err
	})
}

// queueCount is how many tasks of a queue are archived.
type queueCount struct {
	Queue string
	Count int64
}

func (p *Page) archivedQueues(ctx context.Context) ([]queueCount, error) {
	return read(ctx, &p.reads, "queues", func(ctx context.Context) ([]queueCount, error) {
		queues, err := p.opts.Tasks.SMembers(ctx, "asynq:queues").Result()
		if err != nil {
			return nil, fmt.Errorf("list the queues: %w", err)
		}
		slices.Sort(queues)
		counts := make([]queueCount, len(queues))
		for i, queue := range queues {
			n, err := p.opts.Tasks.ZCard(ctx, parking.Task{Queue: queue}.Prefix()+"archived").Result()
			if err != nil {
				return nil, fmt.Errorf("count the archived tasks of a queue: %w", err)
			}
			counts[i] = queueCount{queue, n}
		}
		return counts, nil
	})
}

type archivedData struct {
	choice
	Queues []queueCount
	Causes []string
	Rows   []archivedTask
	paging
	Preview bool
	Newest  int64 // the last time that one of them failed, in s since 1970
}

// Query returns the part of an address that names the choice, apart from its key.
func (c choice) Query() template.URL {
	q := url.Values{"queue": {c.Queue}}
	if c.Because != "" {
		q.Set("because", c.Because)
	}
	return template.URL(q.Encode()) //nolint:gosec // it is escaped for a query
}

func (p *Page) archived(r *http.Request) (view, error) { return p.listOfArchived(r, false) }

// previewReplay lists what a replay would replay.
func (p *Page) previewReplay(r *http.Request) (view, error) { return p.listOfArchived(r, true) }

func (p *Page) listOfArchived(r *http.Request, preview bool) (view, error) {
	c, err := p.choiceOf(r)
	if err != nil {
		return view{}, err
	}
	d := archivedData{choice: c, Causes: causes, Preview: preview}
	if d.Queues, err = p.archivedQueues(r.Context()); err != nil {
		return view{}, err
	}
	if d.Queue == "" && len(d.Queues) > 0 { // the fullest
		d.Queue = slices.MaxFunc(d.Queues, func(a, b queueCount) int { return cmp.Compare(a.Count, b.Count) }).Queue
	}
	if d.Queue != "" {
		all, err := p.listArchived(r.Context(), d.choice)
		if err != nil {
			return view{}, err
		}
		d.paging = page(r, len(all))
		d.Rows = all[d.From:d.To]
		for _, t := range all {
			d.Newest = max(d.Newest, t.At.Unix())
		}
	}
	title := "Dead letters"
	if preview {
		title = "Replay: preview"
	}
	return view{"archived", title, "archived", "", d}, nil
}
