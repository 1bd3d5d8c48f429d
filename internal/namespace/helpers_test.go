package namespace_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/railtoken/railtoken/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Verify(m) }

// sources returns the texts of files.
func sources(t *testing.T, pattern string) (texts []string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	return texts
}
