package chaos

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAPartOfThePageIsReplacedAlone(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(file, []byte("a\n<!-- one -->\nb\n<!-- end of one -->\nc\n<!-- two -->\n<!-- end of two -->\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := WritePart(file, "one", "d\n"); err != nil {
		t.Fatal(err)
	}
	if err := WritePart(file, "two", "e\n"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	if want := "a\n<!-- one -->\nd\n<!-- end of one -->\nc\n<!-- two -->\ne\n<!-- end of two -->\n"; string(got) != want || err != nil {
		t.Errorf("the page is %q, %v; want %q", got, err, want)
	}
	if err := WritePart(file, "three", "f\n"); err == nil {
		t.Error("a part was written that the page does not have")
	}
}
