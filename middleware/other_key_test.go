package middleware_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/middleware"
)

func TestAWakeForAKeyNobodyTakesIsPassedOn(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]func(r *rig, handler asynq.HandlerFunc){
		"another key": func(r *rig, handler asynq.HandlerFunc) {
			opts := r.options(parkAlways())
			opts.Key = middleware.PayloadKey(func(p payload) string { return fmt.Sprint("new:", p.N) })
			r.serve(opts, asynq.Config{Concurrency: 4}, handler)
		},
		"no lock": func(r *rig, handler asynq.HandlerFunc) {
			a := r.attach(r.options(parkAlways()), asynq.Config{Concurrency: 4})
			r.serveOn(a.Client(), handler)
		},
		"a strategy that does not wait": func(r *rig, handler asynq.HandlerFunc) {
			opts := r.options(middleware.FailFast{Outcome: middleware.Discard})
			opts.Key = middleware.PayloadKey(func(p payload) string { return fmt.Sprint("new:", p.N) })
			r.serve(opts, asynq.Config{Concurrency: 4}, handler)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				const tasks = 20
				held := r.hold("order:1")
				before := r.serve(r.options(parkAlways()), asynq.Config{Concurrency: 4}, func(context.Context, *asynq.Task) error { return nil })
				for i := range tasks {
					r.enqueue(payload{Key: "order:1", N: i})
				}
				r.events.await(r, tasks, parked)
				before.Shutdown()
				var ran atomic.Int32
				done := make(chan struct{})
				serve(r, func(context.Context, *asynq.Task) error {
					if ran.Add(1) == tasks {
						close(done)
					}
					return nil
				})
				released := time.Now()
				r.giveBack(held)
				receive(r.T, done)
				if took := time.Since(released); took > soon {
					r.Errorf("all tasks have run after %v", took)
				} else {
					r.Logf("all tasks have run after %v", took)
				}
			})
		})
	}
}
