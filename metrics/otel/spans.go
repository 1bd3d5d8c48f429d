package otel

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/instruments"
	"github.com/railtoken/railtoken/internal/lockwire"
	"github.com/railtoken/railtoken/internal/logsafe"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// most limits how many waits and holds are remembered. Their ends may be events of other processes, or never come.
const most = 10_000

// spans makes the spans of waits and holds.
type spans struct {
	tracer  trace.Tracer
	process string // the beginning of the labels of this process's holders

	mu       sync.Mutex
	waits    *simplelru.LRU[delayqueue.Task, blocker]
	holds    *simplelru.LRU[holdID, trace.Span]
	byHolder *simplelru.LRU[string, trace.SpanContext] // of holds, by their labels
	removed  []trace.Span                              // of holds, to be ended without the lock
}

func newSpans(tracer trace.Tracer) *spans {
	s := &spans{
		tracer: tracer, process: locking.DefaultLabel() + "/",
		waits: newLRU[delayqueue.Task](func(delayqueue.Task, blocker) {}), byHolder: newLRU[string](func(string, trace.SpanContext) {}),
	}
	s.holds = newLRU[holdID](func(_ holdID, span trace.Span) { s.removed = append(s.removed, span) })
	return s
}

// change changes what is remembered, and returns the holds that it has removed.
func (s *spans) change(do func()) (removed []trace.Span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
	removed, s.removed = s.removed, nil
	return removed
}

// newLRU returns an empty map of limited size. forget is called with each entry that is removed.
func newLRU[K comparable, V any](forget func(K, V)) *simplelru.LRU[K, V] {
	m, err := simplelru.NewLRU(most, forget)
	if err != nil {
		panic(err) // most is positive
	}
	return m
}

// blocker is what a task waits for.
type blocker struct {
	holder string // its label
	span   trace.SpanContext
}

// holdID names a hold: a task of items has several at a time.
type holdID struct {
	task delayqueue.Task
	keys string
}

func idOf(e middleware.Event) holdID { return holdID{e.Task, strings.Join(e.Keys, "\x00")} }

// observe makes the spans of an event.
func (s *spans) observe(ctx context.Context, e middleware.Event) {
	switch e.Kind {
	case middleware.Refused:
		s.refused(ctx, e)
	case middleware.Acquired:
		s.waited(ctx, e, "acquired")
		s.acquired(ctx, e)
	case middleware.Ended:
		if outcome := instruments.OutcomeOf(e.Err); outcome != instruments.Parked {
			s.waited(ctx, e, outcome)
		}
	case middleware.Lost:
		s.lost(e)
	case middleware.Released:
		s.released(e)
	case middleware.Parked, middleware.Woke, middleware.Unavailable:
	}
}

// refused notes what the task waits for, on the span of its run as well.
func (s *spans) refused(ctx context.Context, e middleware.Event) {
	b := blocker{}
	if e.Holder != nil {
		b.holder = e.Holder.Label
	}
	s.mu.Lock()
	b.span, _ = s.byHolder.Peek(b.holder)
	s.waits.Add(e.Task, b)
	s.mu.Unlock()
	run := trace.SpanFromContext(ctx)
	run.AddEvent(prefix+"refused", trace.WithTimestamp(e.At), trace.WithAttributes(append(b.attributes(), keyAttributes(e)...)...))
	for _, link := range b.links() {
		run.AddLink(link)
	}
}

func (b blocker) attributes() []attribute.KeyValue {
	if b.holder == "" {
		return nil
	}
	return []attribute.KeyValue{attribute.String(prefix+"blocked_by", valid(b.holder))}
}

func (b blocker) links() []trace.Link {
	if !b.span.IsValid() {
		return nil
	}
	return []trace.Link{{SpanContext: b.span, Attributes: []attribute.KeyValue{attribute.String(prefix+"link", "blocked_by")}}}
}

// waited makes the span of a wait that has ended.
func (s *spans) waited(ctx context.Context, e middleware.Event, outcome string) {
	s.mu.Lock()
	b, _ := s.waits.Peek(e.Task)
	s.waits.Remove(e.Task)
	s.mu.Unlock()
	if e.Waited <= 0 {
		return
	}
	_, span := s.tracer.Start(ctx, prefix+"wait", trace.WithTimestamp(e.At.Add(-e.Waited)), trace.WithLinks(b.links()...),
		trace.WithAttributes(slices.Concat(b.attributes(), keyAttributes(e), taskAttributes(e.Task.Queue, e.Task.ID, e.Type),
			[]attribute.KeyValue{attribute.String(prefix+"outcome", outcome)})...))
	if outcome != "acquired" {
		span.SetStatus(codes.Error, outcome)
	}
	span.End(trace.WithTimestamp(e.At))
}

// acquired begins the span of a hold.
func (s *spans) acquired(ctx context.Context, e middleware.Event) {
	_, span := s.tracer.Start(ctx, prefix+"hold", trace.WithTimestamp(e.At), trace.WithAttributes(slices.Concat(
		keyAttributes(e), taskAttributes(e.Task.Queue, e.Task.ID, e.Type),
		[]attribute.KeyValue{attribute.String(prefix+"backend", valid(e.Backend)), seconds("woken", e.Woken), seconds("acquire", e.Took)})...))
	for _, old := range s.change(func() {
		s.holds.Remove(idOf(e))
		s.holds.Add(idOf(e), span)
		s.byHolder.Add(s.labelOf(e), span.SpanContext())
	}) {
		old.End() // its end was never told, or there are too many
	}
}

// labelOf returns the label of the holder, as other tasks are told it.
func (s *spans) labelOf(e middleware.Event) string {
	return lockwire.CleanLabel(s.process + e.Type + "/" + e.Task.ID)
}

// lost notes why the lease was lost. The span ends when the handler returns.
func (s *spans) lost(e middleware.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if span, found := s.holds.Peek(idOf(e)); found {
		span.SetStatus(codes.Error, "the lease was lost")
		span.AddEvent(prefix+"lost", trace.WithTimestamp(e.At), trace.WithAttributes(attribute.String(prefix+"reason", instruments.ReasonOf(e.Err))))
	}
}

// released ends the span of a hold.
func (s *spans) released(e middleware.Event) {
	for _, span := range s.change(func() {
		span, found := s.holds.Peek(idOf(e))
		if of, _ := s.byHolder.Peek(s.labelOf(e)); found && of.Equal(span.SpanContext()) {
			s.byHolder.Remove(s.labelOf(e))
		}
		s.holds.Remove(idOf(e))
	}) {
		span.End(trace.WithTimestamp(e.At))
	}
}

func seconds(name string, d time.Duration) attribute.KeyValue {
	return attribute.Float64(prefix+name+".seconds", d.Seconds())
}

// taskAttributes name a task.
func taskAttributes(queue, id, kind string) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String(prefix+"queue", valid(queue)), attribute.String(prefix+"task.id", valid(id)),
		attribute.String(prefix+"task.type", valid(kind)),
	}
}

// keyAttributes have the hashes of an event's keys: of the one that is held, if it names one.
func keyAttributes(e middleware.Event) []attribute.KeyValue {
	keys := e.Keys
	if e.Key != "" {
		keys = []string{e.Key}
	}
	return []attribute.KeyValue{attribute.StringSlice(prefix+"key_hash", logsafe.Keys(keys))}
}

// valid returns text without bytes that exporters do not accept.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
