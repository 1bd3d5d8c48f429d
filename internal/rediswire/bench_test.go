package rediswire_test

import (
	"testing"

	"github.com/railtoken/railtoken/internal/rediswire"
)

// BenchmarkEncode encodes an ordinary key, which stays as it is, and one with bytes that are not safe in the name of a
// lock.
func BenchmarkEncode(b *testing.B) {
	for name, key := range map[string]string{"plain": "order:1042", "unsafe": "order {1042} of tenant ä"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				rediswire.Encode(key)
			}
		})
	}
}
