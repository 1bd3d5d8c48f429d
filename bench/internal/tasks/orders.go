package tasks

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"
)

// Order is what a customer bought.
type Order struct {
	ID string
	// Sellers ship its parts. There is at least one.
	Sellers []string
}

// ReadOrdersFile reads the orders of a CSV file: see [ReadOrders].
func ReadOrdersFile(path string) ([]Order, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	orders, err := ReadOrders(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return orders, nil
}

// ReadOrders reads orders from CSV with a header that names order_id and seller_ids, separated by spaces, among other
// columns. It returns the first fault with its line, and no order then.
func ReadOrders(r io.Reader) ([]Order, error) {
	in := csv.NewReader(r)
	header, err := in.Read()
	if err != nil {
		return nil, fmt.Errorf("no header with order_id and seller_ids: %w", err)
	}
	for i := range header {
		header[i] = strings.ToLower(strings.TrimSpace(strings.TrimPrefix(header[i], "\ufeff")))
	}
	id, sellers := slices.Index(header, "order_id"), slices.Index(header, "seller_ids")
	if id < 0 || sellers < 0 {
		return nil, fmt.Errorf("the header is %q: it must name order_id and seller_ids", header)
	}
	rows, err := in.ReadAll()
	if err != nil {
		return nil, err // it names the line
	}
	if len(rows) == 0 {
		return nil, errors.New("there is a header but no order")
	}
	orders := make([]Order, len(rows))
	for i, row := range rows {
		orders[i] = Order{ID: strings.TrimSpace(row[id]), Sellers: strings.Fields(row[sellers])}
		if orders[i].ID == "" || len(orders[i].Sellers) == 0 {
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
		orders[i].ID = fmt.Sprintf("A%06d", 100_000+i)
		for parts := 1 + rng.IntN(40)/37; len(orders[i].Sellers) < parts; {
			if seller := fmt.Sprintf("S%04d", zipf.Uint64()+1); !slices.Contains(orders[i].Sellers, seller) {
				orders[i].Sellers = append(orders[i].Sellers, seller)
			}
		}
	}
	return orders
}

// ByOrder returns the tasks of some orders: an audit and an allocation of each, enqueued one right after the other into
// queues of their own, with the order as their key. The orders are shuffled, and of too many those with the most tasks
// are kept.
func ByOrder(orders []Order, most int, work time.Duration, seed uint64) Scenario {
	s := fromOrders("orders", orders, most, work, seed, func(o Order) string { return "order:" + o.ID })
	s.Title = fmt.Sprintf("orders: %d tasks x %v in two queues, an audit and then an allocation of each order,"+
		" with %d orders as keys", len(s.Tasks), work, s.Keys())
	return s
}

// BySeller returns the tasks of some orders, all shuffled: an audit and an allocation of each, in queues of their own,
// with the order's first seller as their key. Of too many those of the sellers with the most are kept.
func BySeller(orders []Order, most int, work time.Duration, seed uint64) Scenario {
	s := fromOrders("sellers", orders, most, work, seed, func(o Order) string { return "seller:" + o.Sellers[0] })
	shuffle(s.Tasks, seed)
	s.number()
	s.Title = fmt.Sprintf("orders: %d tasks x %v in two queues, all shuffled, with %d sellers as keys",
		len(s.Tasks), work, s.Keys())
	return s
}

func fromOrders(name string, orders []Order, most int, work time.Duration, seed uint64, key func(Order) string) Scenario {
	orders = hottest(orders, (most+1)/2, key)
	shuffle(orders, seed)
	s := Scenario{Name: name, Bare: Slots}
	for _, o := range orders {
		for _, kind := range []string{"audit", "allocate"} {
			s.Tasks = append(s.Tasks, Task{Key: key(o), Work: work, Type: kind, Queue: kind})
		}
	}
	s.number()
	return s
}

// hottest returns at most so many orders: the ones whose key has the most of them, and of equal ones the first.
func hottest(orders []Order, most int, key func(Order) string) []Order {
	count, first := map[string]int{}, map[string]int{}
	for i, o := range orders {
		if count[key(o)] == 0 {
			first[key(o)] = i
		}
		count[key(o)]++
	}
	sorted := slices.Clone(orders)
	slices.SortStableFunc(sorted, func(a, b Order) int {
		return cmp.Or(count[key(b)]-count[key(a)], first[key(a)]-first[key(b)])
	})
	return sorted[:min(most, len(sorted))]
}
