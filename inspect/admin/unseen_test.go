package admin_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/inspect/admin"
	"github.com/railtoken/railtoken/internal/holdings"
)

func TestAHolderInAnotherStoreCannotBeDeposed(t *testing.T) {
	t.Parallel()
	r := newRig(t, admin.Options{Actions: true})
	text, err := json.Marshal(holdings.Worker{Host: "web", PID: 7, Backend: "pglock", Keys: 1, Held: []holdings.Held{{
		Key: []byte("order:1"), Queue: "default", ID: "first", Type: "audit", Since: time.Now().Add(-time.Minute).UnixMilli(),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	r.client.Set(t.Context(), holdings.Key("w"), text, 0)
	r.client.ZAdd(t.Context(), holdings.Workers, redis.Z{Score: float64(time.Now().UnixMilli()), Member: "w"})
	r.client.HSet(t.Context(), "asynq:{default}:t:first", "state", "active")
	page := r.get(200, "/key?key=order%3A1")
	contains(t, "the page", page, "Held for", "default/first", "web/7", "in another store (pglock)")
	if strings.Contains(page, "Depose") || strings.Contains(page, "Lock ends in") {
		t.Errorf("the page offers to depose the holder, or shows an end of its lock: %s", page)
	}
}
