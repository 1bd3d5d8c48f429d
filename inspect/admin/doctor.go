package admin

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/internal/doctor"
)

const (
	// examineEach is how long a report is shown before it is made again: an examination asks every server much.
	examineEach = 30 * time.Second
	// examineLimit bounds an examination, and patience is how long a page waits for it.
	examineLimit = 30 * time.Second
	patience     = 4 * time.Second
)

// examiner examines everything when it is asked, once at a time.
type examiner struct {
	examine func(ctx context.Context) (doctor.Report, error)

	mu     sync.Mutex
	last   *examination
	cancel context.CancelFunc // of the one that is under way
	closed bool
}

// examination is one examination: under way until done is closed.
type examination struct {
	done   chan struct{}
	at     time.Time
	report doctor.Report
	err    error
}

// ask returns the last examination, or begins one if that is too old. It waits for the end until ctx ends.
func (e *examiner) ask(ctx context.Context) (made *examination, ended bool) {
	e.mu.Lock()
	x := e.last
	if x == nil || x.hasEnded() && time.Since(x.at) >= examineEach {
		x = &examination{done: make(chan struct{})}
		examining, cancel := context.WithTimeout(context.WithoutCancel(ctx), examineLimit)
		e.last, e.cancel = x, cancel
		if e.closed {
			cancel()
		}
		go func() {
			defer cancel()
			x.report, x.err = e.examine(examining)
			x.at = time.Now()
			close(x.done)
		}()
	}
	e.mu.Unlock()
	select {
	case <-x.done:
		return x, true
	case <-ctx.Done():
		return x, false
	}
}

func (x *examination) hasEnded() bool {
	select {
	case <-x.done:
		return true
	default:
		return false
	}
}

// close ends an examination that is under way.
func (e *examiner) close() {
	e.mu.Lock()
	e.closed = true
	x := e.last
	if e.cancel != nil {
		e.cancel()
	}
	e.mu.Unlock()
	if x != nil {
		<-x.done
	}
}

// examineAll does what railtoken doctor does, with its default settings.
func (p *Page) examineAll(ctx context.Context) (doctor.Report, error) {
	src := doctor.Sources{Tasks: p.opts.Tasks, Inspector: p.opts.Inspector}
	for _, client := range p.opts.Inspector.LockServers() {
		if node, ok := client.(*redis.Client); ok && p.opts.Redlock {
			src.Nodes = append(src.Nodes, node)
		} else {
			src.Locks = client
		}
	}
	return doctor.Examine(ctx, src)
}

type doctorData struct {
	Ended     bool
	At        time.Time
	Err       string
	Findings  []doctor.Finding
	Unchecked []doctor.Unchecked
	Hidden    int // findings about keys that the user may not see
}

// doctor shows the findings of an examination.
func (p *Page) doctor(r *http.Request) (view, error) {
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	x, ended := p.examiner.ask(ctx)
	d := doctorData{Ended: ended}
	if ended {
		d.At, d.Unchecked = x.at, x.report.Unchecked
		if x.err != nil {
			d.Err = x.err.Error()
		}
		for _, f := range slices.Clone(x.report.Findings) {
			if f.Key != "" && p.allowed(r, inspect.ActionView, f.Key) != nil {
				d.Hidden++
				continue
			}
			for _, text := range []*string{&f.Where, &f.What, &f.Cost, &f.Remedy, &f.Command} {
				*text = p.without(*text, f.Key)
			}
			d.Findings = append(d.Findings, f)
		}
	}
	return view{"doctor", "Doctor", "doctor", "", d}, nil
}
