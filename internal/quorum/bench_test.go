package quorum_test

import (
	"testing"

	"github.com/railtoken/railtoken/internal/quorum"
)

// BenchmarkAcquisition decides on a lock of one key that five nodes grant, and commits its token.
func BenchmarkAcquisition(b *testing.B) {
	b.ReportAllocs()
	tops := []int64{42}
	for b.Loop() {
		a := quorum.New(5)
		for i := range 3 {
			a.Granted(i, tops)
		}
		if !a.Commit().Done {
			b.Fatal("three of five are no quorum")
		}
	}
}
