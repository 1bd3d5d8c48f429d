package tasks_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/railtoken/railtoken/bench/internal/tasks"
)

func TestReadOrdersFindsItsColumnsAmongOthers(t *testing.T) {
	t.Parallel()
	got, err := tasks.ReadOrders(write(t, "\ufeffSeller_IDs, value ,order_id\ns1 s2,1.5,a\n\"s3\",2,b\n"))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0].ID != "a" || got[0].Seller != "s1" || got[1].ID != "b" {
		t.Errorf("got %+v", got)
	}
}

func TestReadOrdersRefusesWhatHasNoOrders(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		"":                                      "header",
		"order_id\na\n":                         "the header",
		"order_id,seller_ids\n":                 "no order",
		"order_id,seller_ids\na,s\n,s\n":        "line 3",
		"order_id,seller_ids\na,s\nb, \n":       "line 3",
		"order_id,seller_ids\na,s,too many\n":   "line 2",
		"order_id,seller_ids\na,\"not ended\nb": "line",
	} {
		if got, err := tasks.ReadOrders(write(t, text)); err == nil || !strings.Contains(err.Error(), says) || got != nil {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "orders.csv")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestByOrderEnqueuesTheTwoTasksOfAnOrderOneAfterTheOther(t *testing.T) {
	t.Parallel()
	s := tasks.ByOrder(tasks.GenerateOrders(50, 1), 60, time.Millisecond, 1)
	if len(s.Tasks) != 60 || s.Keys() != 30 || s.Bare != tasks.Slots {
		t.Fatalf("%d tasks, %d keys, bare %d", len(s.Tasks), s.Keys(), s.Bare)
	}
	ordered := true
	for i := 0; i < len(s.Tasks); i += 2 {
		first, second := s.Tasks[i], s.Tasks[i+1]
		if first.Key != second.Key || first.Queue != "audit" || second.Queue != "allocate" || first.N != i || second.N != i+1 {
			t.Fatalf("%+v and %+v", first, second)
		}
		if i > 0 && s.Tasks[i].Key < s.Tasks[i-2].Key {
			ordered = false
		}
	}
	if ordered {
		t.Error("the orders are not shuffled")
	}
}

func TestBySellerKeepsTheKeysThatRepeatMost(t *testing.T) {
	t.Parallel()
	var orders []tasks.Order
	for i, seller := range []string{"rare", "hot", "warm", "hot", "warm", "hot"} {
		orders = append(orders, tasks.Order{ID: fmt.Sprint(i), Seller: seller})
	}
	s := tasks.BySeller(orders, 8, time.Millisecond, 1)
	count := map[string]int{}
	for i, task := range s.Tasks {
		count[task.Key]++
		if task.N != i {
			t.Errorf("task %d has the number %d", i, task.N)
		}
	}
	if len(s.Tasks) != 8 || count["seller:hot"] != 6 || count["seller:warm"] != 2 {
		t.Errorf("got %v", count)
	}
	if all := tasks.BySeller(orders, 1000, time.Millisecond, 1); len(all.Tasks) != 12 {
		t.Errorf("of few orders %d tasks are kept", len(all.Tasks))
	}
}

func TestGeneratedOrdersAreTheSameForTheSameSeedAndHaveHotSellers(t *testing.T) {
	t.Parallel()
	orders := tasks.GenerateOrders(2000, 7)
	again := tasks.GenerateOrders(2000, 7)
	count := map[string]int{}
	for i, o := range orders {
		if o != again[i] {
			t.Fatalf("order %d differs: %+v, %+v", i, o, again[i])
		}
		count[o.Seller]++
	}
	most := 0
	for _, n := range count {
		most = max(most, n)
	}
	if len(count) < 100 || most < 20 || most > 300 {
		t.Errorf("%d sellers, the hottest has %d orders", len(count), most)
	}
}
