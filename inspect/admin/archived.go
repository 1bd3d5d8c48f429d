package admin

import (
	"cmp"
	"context"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/middleware"
)

// archivedTask is a task in asynq's archive. Its payload is not kept.
type archivedTask struct {
	Task     delayqueue.Task
	At       time.Time // when it was archived
	Type     string
	Key      string // set if it was archived because of a conflict
	Because  string // the limit that was reached, held, or other
	Text     string // the error of its last run, for another cause
	Conflict *middleware.ConflictError
}

// explain notes why the task was archived, as its result tells.
func (t *archivedTask) explain(result []byte) {
	t.Because = "other"
	if c, err := middleware.ParseConflict(result); err == nil {
		t.Conflict, t.Key, t.Because = c, c.Key, cmp.Or(string(c.Limit), "held")
	}
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

// listArchived returns the archived tasks that are meant, in asynq's order: at most mostRead. Of each it reads the result at most,
// and that only if it decides: messages contain the payloads, and are read of the tasks that are shown.
func (p *Page) listArchived(ctx context.Context, c choice) ([]archivedTask, error) {
	name := fmt.Sprintf("archived:%q %q %q", c.Queue, c.Because, c.Key)
	return read(ctx, &p.reads, name, func(ctx context.Context) ([]archivedTask, error) {
		queues, err := (*line.Engine)(p.opts.Inspector.Queue()).InUse(ctx, c.Queue)
		if err != nil {
			return nil, err
		}
		var all []archivedTask
		for _, queue := range queues {
			entries, err := p.opts.Tasks.ZRangeWithScores(ctx, asynqwire.Archived(queue), 0, mostRead-1).Result()
			if err != nil {
				return nil, fmt.Errorf("list the archived tasks of a queue: %w", err)
			}
			for _, e := range entries {
				id, _ := e.Member.(string)
				all = append(all, archivedTask{Task: delayqueue.Task{Queue: queue, ID: id}, At: time.Unix(int64(e.Score), 0)})
			}
		}
		slices.SortStableFunc(all, func(a, b archivedTask) int { return a.At.Compare(b.At) })
		all = all[:min(len(all), mostRead)]
		if c.Because == "" && c.Key == "" {
			return all, nil
		}
		err = p.readFields(ctx, all, []string{"result"}, func(t *archivedTask, fields []string) { t.explain([]byte(fields[0])) })
		return slices.DeleteFunc(all, func(t archivedTask) bool { return !c.matches(t) }), err
	})
}

// describe returns archived tasks with all that is shown of them, without those that are gone.
func (p *Page) describe(ctx context.Context, tasks []archivedTask) ([]archivedTask, error) {
	shown := slices.Clone(tasks)
	err := p.readFields(ctx, shown, []string{asynqwire.ResultField, asynqwire.MessageField}, func(t *archivedTask, fields []string) {
		t.explain([]byte(fields[0]))
		about := line.OutlineOf(fields[1])
		if t.Type = about.Type; t.Conflict == nil {
			t.Text = about.LastErr
		}
		if fields[1] == "" {
			t.Task.ID = ""
		}
	})
	return slices.DeleteFunc(shown, func(t archivedTask) bool { return t.Task.ID == "" }), err
}

// fieldsBatch is how many tasks one call reads fields of.
const fieldsBatch = 500

// readFields reads fields of tasks, and passes them to note: empty if the task does not have them.
func (p *Page) readFields(ctx context.Context, tasks []archivedTask, names []string, note func(t *archivedTask, fields []string)) error {
	for batch := range slices.Chunk(tasks, fieldsBatch) {
		replies := make([]*redis.SliceCmd, len(batch))
		if _, err := p.opts.Tasks.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for i, t := range batch {
				replies[i] = pipe.HMGet(ctx, line.Task(t.Task).Hash(), names...)
			}
			return nil
		}); err != nil {
			return fmt.Errorf("read the archived tasks of a queue: %w", err)
		}
		fields := make([]string, len(names))
		for i := range batch {
			for n, value := range replies[i].Val() {
				fields[n], _ = value.(string)
			}
			note(&batch[i], fields)
		}
	}
	return nil
}

// queueCount is how many tasks of a queue are archived, in all of its lanes. Lanes has those of each of its lanes that has any.
type queueCount struct {
	Queue string
	Count int64
	Lanes []queueCount
}

func (p *Page) archivedQueues(ctx context.Context) ([]queueCount, error) {
	return read(ctx, &p.reads, "queues", func(ctx context.Context) ([]queueCount, error) {
		queues, err := p.opts.Tasks.SMembers(ctx, asynqwire.Queues).Result()
		if err != nil {
			return nil, fmt.Errorf("list the queues: %w", err)
		}
		slices.Sort(queues)
		sizes := make([]*redis.IntCmd, len(queues))
		if _, err := p.opts.Tasks.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for i, queue := range queues {
				sizes[i] = pipe.ZCard(ctx, asynqwire.Archived(queue))
			}
			return nil
		}); err != nil {
			return nil, fmt.Errorf("count the archived tasks of a queue: %w", err)
		}
		counts := make([]queueCount, len(queues))
		for i, queue := range queues {
			counts[i] = queueCount{Queue: queue, Count: sizes[i].Val()}
		}
		return folded(counts), nil
	})
}

// folded returns the queues in order, each with its lanes.
func folded(counts []queueCount) (all []queueCount) {
	at := map[string]int{}
	for _, c := range counts {
		name, _, inLane := lanes.Split(c.Queue)
		i, known := at[name]
		if !known {
			i = len(all)
			at[name], all = i, append(all, queueCount{Queue: name})
		}
		all[i].Count += c.Count
		if inLane && c.Count > 0 {
			all[i].Lanes = append(all[i].Lanes, c)
		}
	}
	return all
}

type archivedData struct {
	choice
	Queues []queueCount
	Causes []string
	Rows   []archivedTask
	paging
	Preview bool
	Newest  int64 // when the last of them was archived, in s since 1970
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
		if !slices.ContainsFunc(d.Queues, func(q queueCount) bool { return q.Queue == lanes.Base(d.Queue) }) {
			return view{}, &refusal{http.StatusNotFound, "asynq knows no such queue", "Choose a queue in the list of dead letters."}
		}
		all, err := p.listArchived(r.Context(), d.choice)
		if err != nil {
			return view{}, err
		}
		d.paging = page(r, len(all))
		if d.Rows, err = p.describe(r.Context(), all[d.From:d.To]); err != nil {
			return view{}, err
		}
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
