package main

import (
	"maps"
	"reflect"
	"slices"
	"testing"
)

func TestGenerateOrdersRepeatsItselfForASeed(t *testing.T) {
	t.Parallel()
	if !reflect.DeepEqual(generateOrders(200, 7), generateOrders(200, 7)) {
		t.Error("the same seed gives different orders")
	}
	if reflect.DeepEqual(generateOrders(200, 7), generateOrders(200, 8)) {
		t.Error("different seeds give the same orders")
	}
}

func TestGenerateOrdersMakesValidOrders(t *testing.T) {
	t.Parallel()
	ids := map[string]bool{}
	for _, o := range generateOrders(2000, 1) {
		if ids[o.ID] || o.Items < len(o.Sellers) || o.ValueCents <= 0 || o.Status == "" || o.PurchasedAt.IsZero() {
			t.Fatalf("%+v", o)
		}
		ids[o.ID] = true
		slices.Sort(o.Sellers)
		if n := len(slices.Compact(o.Sellers)); n != len(o.Sellers) || n < 1 || n > 3 {
			t.Fatalf("%s has the sellers %q", o.ID, o.Sellers)
		}
	}
}

// By a Zipf law the second seller has about half as many orders as the first (here 2^-1.15), the tenth a fourteenth.
func TestGenerateOrdersHasAFewHotSellers(t *testing.T) {
	t.Parallel()
	const n = 4000
	count := map[string]int{}
	for _, o := range generateOrders(n, 1) {
		for _, s := range o.Sellers {
			count[s]++
		}
	}
	sorted := slices.Sorted(maps.Values(count))
	slices.Reverse(sorted)
	if first, second, tenth := float64(sorted[0]), float64(sorted[1]), float64(sorted[9]); first/second < 1.5 || first/second > 3 || first/tenth < 7 || first/tenth > 20 {
		t.Errorf("the hottest sellers have %d parts", sorted[:10])
	}
	if len(sorted) < n/10 {
		t.Errorf("only %d sellers: there is no long tail", len(sorted))
	}
}

func TestGenerateOrdersMakesASingleOne(t *testing.T) {
	t.Parallel()
	if orders := generateOrders(1, 0); len(orders) != 1 || len(orders[0].Sellers) == 0 {
		t.Error(orders)
	}
}
