package tasks

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"
)

// Order is what a customer bought.
type Order struct {
	ID string
	// Seller ships it, or the first of its parts.
	Seller string
}

// ReadOrders reads orders from a CSV file with a header that names order_id and seller_ids, separated by spaces, among
// other columns. It returns the first fault with its line, and no order then.
func ReadOrders(file string) ([]Order, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	rows, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
	if err != nil {
		return nil, err // it names the line
	}
	if len(rows) < 2 {
		return nil, errors.New("there is no order, or no header with order_id and seller_ids")
	}
	header := strings.Split(strings.NewReplacer("\ufeff", "", " ", "").Replace(strings.ToLower(strings.Join(rows[0], ","))), ",")
	id, sellers := slices.Index(header, "order_id"), slices.Index(header, "seller_ids")
	if id < 0 || sellers < 0 {
		return nil, fmt.Errorf("the header is %q: it must name order_id and seller_ids", header)
	}
	orders := make([]Order, len(rows)-1)
	for i, row := range rows[1:] {
		orders[i].ID = row[id]
		orders[i].Seller, _, _ = strings.Cut(strings.TrimSpace(row[sellers]), " ")
		if orders[i].ID == "" || orders[i].Seller == "" {
			return nil, fmt.Errorf("line %d: an order needs an order_id and at least one of seller_ids", i+2)
		}
	}
	return orders, nil
}

// GenerateOrders returns n orders, the same for the same seed. A few sellers have a part in very many of them, as in a
// real shop.
func GenerateOrders(n int, seed uint64) []Order {
	rng := rand.New(rand.NewPCG(seed, uint64(n)))
	zipf := rand.NewZipf(rng, 1.15, 8, uint64(max(n/4, 20)-1))
	orders := make([]Order, n)
	for i := range orders {
		orders[i] = Order{ID: fmt.Sprintf("A%06d", 100_000+i), Seller: fmt.Sprintf("S%04d", zipf.Uint64()+1)}
	}
	return orders
}

// ByOrder returns the tasks of some orders: an audit and an allocation of each, enqueued one right after the other into
// queues of their own, with the order as their key. The orders are shuffled, and of too many those with the most tasks
// are kept.
func ByOrder(orders []Order, most int, work time.Duration, seed uint64) Scenario {
	s := fromOrders(orders, most, work, seed, func(o Order) string { return "order:" + o.ID })
	s.Name, s.Title = "orders", fmt.Sprintf("orders: %d tasks x %v in two queues, an audit and then an allocation of each order,"+
		" with %d orders as keys", len(s.Tasks), work, s.Keys())
	return s
}

// BySeller returns the same tasks, all shuffled, with the order's seller as their key. Of too many those of the sellers
// with the most are kept.
func BySeller(orders []Order, most int, work time.Duration, seed uint64) Scenario {
	s := fromOrders(orders, most, work, seed, func(o Order) string { return "seller:" + o.Seller }).shuffled(seed)
	s.Name, s.Title = "sellers", fmt.Sprintf("orders: %d tasks x %v in two queues, all shuffled, with %d sellers as keys",
		len(s.Tasks), work, s.Keys())
	return s
}

func fromOrders(orders []Order, most int, work time.Duration, seed uint64, key func(Order) string) Scenario {
	orders = hottest(orders, (most+1)/2, key)
	shuffle(orders, seed)
	s := Scenario{Bare: Slots}
	for _, o := range orders {
		s = s.with(Task{Key: key(o), Work: work, Queue: "audit"}).with(Task{Key: key(o), Work: work, Queue: "allocate"})
	}
	return s
}

// hottest returns at most so many orders: the ones whose key has the most of them.
func hottest(orders []Order, most int, key func(Order) string) []Order {
	count := map[string]int{}
	for _, o := range orders {
		count[key(o)]++
	}
	sorted := slices.Clone(orders)
	slices.SortStableFunc(sorted, func(a, b Order) int {
		return cmp.Or(count[key(b)]-count[key(a)], strings.Compare(key(a), key(b)))
	})
	return sorted[:min(most, len(sorted))]
}
