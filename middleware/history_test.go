package middleware_test

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/holdings"
	"github.com/railtoken/railtoken/middleware"
)

// Five tasks of one key, one after another, and one of another key that nobody else wants.
func TestRefusalsWakesAndHoldsAreRemembered(t *testing.T) {
	t.Parallel()
	for name, locks := range map[string]func(*rig) options{
		"with the tasks": func(*rig) options { return options{} }, // the locks are taken and released in the scripts of the tasks
		"apart": func(r *rig) options {
			opts := r.options(nil)
			opts.RedisKeys = nil // the queue does not know that the locks are on its Redis
			return opts
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				<-time.After(30 * time.Second) // so that all happens in one minute
				opts := locks(r)
				opts.Strategy = middleware.Requeue{}
				opts.Key, opts.Observer = middleware.PayloadKey(func(p payload) string { return p.Key }), r.events.Observe
				began, end := make(chan struct{}, 10), make(chan struct{})
				r.serve(opts, asynq.Config{Concurrency: 10}, func(context.Context, *asynq.Task) error {
					began <- struct{}{}
					<-end
					return nil
				})
				r.enqueue(payload{Key: "quiet"})
				r.enqueue(payload{Key: "order:1"})
				receive(r.T, began)
				receive(r.T, began)
				for range 4 {
					r.enqueue(payload{Key: "order:1"})
				}
				r.events.await(r, 4, parked)
				<-time.After(6 * time.Second) // a report
				close(end)
				r.events.await(r, 6, released)
				<-time.After(6 * time.Second)
				hour, err := holdings.ReadHistory(r.Context(), r.client, time.Now(), holdings.Minutes)
				if err != nil {
					r.Fatal(err)
				}
				minute := hour[len(hour)-1]
				all, _ := minute.All()
				key, _ := minute.Of("order:1")
				if all.Holds != 6 || all.Refusals != 4 || all.Wakes != 4 || all.Waiting != 4 || all.Oldest < 4*time.Second {
					r.Errorf("all keys: %+v", all)
				}
				// The first task took the key while nobody waited.
				if key.Holds != 4 || key.Refusals != 4 || key.Wakes != 4 || key.Waiting != 4 || key.Oldest < 4*time.Second {
					r.Errorf("the key: %+v", key)
				}
				if quiet, ok := minute.Of("quiet"); !ok || quiet != (holdings.Point{Holds: -1}) {
					r.Errorf("the other key: %+v", quiet)
				}
			})
		})
	}
}

func TestAnOldWaitIsRememberedEachMinute(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		r.looks = lookSeldom
		r.hold("order:1")
		opts := r.options(middleware.Requeue{Delay: time.Hour})
		first := r.serve(opts, asynq.Config{}, func(context.Context, *asynq.Task) error { return nil })
		r.enqueue(payload{Key: "order:1"})
		r.events.await(r, 1, parked)
		first.Shutdown() // the one that knows
		_ = r.attached.Close()
		<-time.After(time.Minute)
		r.serve(opts, asynq.Config{}, func(context.Context, *asynq.Task) error { return nil })
		<-time.After(3*time.Minute + 10*time.Second)
		hour, err := holdings.ReadHistory(r.Context(), r.client, time.Now(), holdings.Minutes)
		if err != nil {
			r.Fatal(err)
		}
		for n, minute := range hour[len(hour)-3:] {
			key, ok := minute.Of("order:1")
			all, _ := minute.All()
			if oldest := time.Duration(n+1) * time.Minute; !ok || key.Waiting != 1 || key.Oldest < oldest || all.Waiting != 1 || all.Oldest != key.Oldest {
				r.Errorf("%v: key %+v (known: %v), all %+v, want a wait of %v", minute.At, key, ok, all, oldest)
			}
		}
	})
}
