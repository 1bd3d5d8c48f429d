package middleware_test

import (
	"testing"
	"time"

	"github.com/railtoken/railtoken/middleware"
)

// BenchmarkDecide is what a strategy takes to decide on a conflict.
func BenchmarkDecide(b *testing.B) {
	now := time.Now()
	conflict := middleware.Conflict{
		Key: "order:1042", Attempt: 1, FirstAt: now, Now: now, Deadline: now.Add(time.Hour), MayWait: true,
	}
	for name, strategy := range map[string]middleware.Strategy{
		"requeue": middleware.Requeue{}, "wait then requeue": middleware.Wait{}.Then(middleware.Requeue{}), "fail fast": middleware.FailFast{},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				strategy.Decide(conflict)
			}
		})
	}
}
