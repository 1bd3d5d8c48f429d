package pipeline_test

import (
	"testing"

	"github.com/railtoken/railtoken/internal/pipeline"
)

// deep calls itself n times, with a frame of about 200 bytes.
//
//go:noinline
func deep(n int, seed byte) byte {
	var frame [160]byte
	frame[n] = seed
	if n == 0 {
		return frame[0]
	}
	return deep(n-1, seed+frame[n/2]) + frame[n]
}

// BenchmarkGoroutine compares goroutines that call deeply with and without Grow.
func BenchmarkGoroutine(b *testing.B) {
	run := func(first func(), calls int) func(*testing.B) {
		return func(b *testing.B) {
			done := make(chan byte)
			for b.Loop() {
				go func() {
					first()
					done <- deep(calls, 1)
				}()
				<-done
			}
		}
	}
	b.Run("as it is", run(func() {}, 24))
	b.Run("grown", run(pipeline.GrowStack, 24))
	b.Run("deep, grown", run(pipeline.GrowStack, 40))
	b.Run("deep, grown for it", run(pipeline.GrowStackDeep, 40))
}
