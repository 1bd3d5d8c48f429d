package chaos

import (
	_ "embed"
	"encoding/binary"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/testing/testserver"
)

//go:embed testdata/step.c
var shim []byte

// Clocks are those of servers, which can step.
type Clocks struct{ dir string }

// NewClocks makes the clocks of the servers that a test starts from now on steppable. Elsewhere than on Linux it returns nil, and no
// clock steps.
func NewClocks(t *testing.T) *Clocks {
	t.Helper()
	if runtime.GOOS != "linux" {
		return nil
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		cc, err = exec.LookPath("gcc")
	}
	testserver.Needed(t, "a C compiler", err)
	dir := t.TempDir()
	source, library := filepath.Join(dir, "step.c"), filepath.Join(dir, "step.so")
	if err := os.WriteFile(source, shim, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), cc, "-shared", "-fPIC", "-O1", "-o", library, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Setenv("LD_PRELOAD", library)
	t.Setenv("CHAOS_CLOCKS", dir)
	return &Clocks{dir}
}

// Set sets the clock of the server with an address apart from the true time.
func (c *Clocks) Set(addr string, offset time.Duration) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(c.dir, port), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(offset)), 0) //nolint:gosec // two's complement is what it reads
	if failed := f.Close(); err == nil {
		err = failed
	}
	return err
}
