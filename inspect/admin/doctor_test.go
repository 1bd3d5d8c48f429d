package admin_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/inspect/admin"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// examined returns the page of an examination that has ended.
func (r *rig) examined() string {
	r.Helper()
	for {
		if text := r.get(http.StatusOK, "/doctor"); !strings.Contains(text, "are being examined") {
			return text
		}
		redistest.Receive(r, time.After(50*time.Millisecond), limit)
	}
}

func TestThePageShowsWhatTheDoctorFinds(t *testing.T) {
	t.Parallel()
	r := newRig(t, admin.Options{Authorize: func(_ *http.Request, _ inspect.Action, key string) error {
		if key != "" {
			return errors.New("only lists")
		}
		return nil
	}})
	r.client.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru")
	r.client.ConfigSet(t.Context(), "maxmemory", "1gb")
	r.get(http.StatusOK, "/")
	contains(t, "the page", r.examined(), "eviction", "What to do")
	r.client.ConfigSet(t.Context(), "maxmemory-policy", "noeviction")
	contains(t, "the page within 30 s", r.examined(), "eviction")
}
