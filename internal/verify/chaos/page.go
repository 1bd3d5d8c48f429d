package chaos

import (
	"fmt"
	"os"
	"strings"
)

// WritePart replaces a part of a page: what stands between <!-- name --> and <!-- end of name -->.
func WritePart(file, name, text string) error {
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	begin, end := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->\n"
	before, rest, ok := strings.Cut(string(page), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return fmt.Errorf("chaos: %s has no part %s", file, name)
	}
	return os.WriteFile(file, []byte(before+begin+text+end+after), 0o644) //nolint:gosec // a page
}
