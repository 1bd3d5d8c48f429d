package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

const (
	ordersPerSeller = 4    // a catalog of a seller for every four orders
	fewestSellers   = 20   // in a small set
	zipfExponent    = 1.15 // how much hotter each seller is than the next
)

// firstPurchase is when the generated orders begin.
var firstPurchase = time.Date(2026, time.March, 2, 8, 0, 0, 0, time.UTC)

// statuses has the statuses to draw from. Most orders are delivered.
var statuses = []string{"delivered", "delivered", "delivered", "delivered", "delivered", "delivered", "shipped", "shipped", "processing", "invoiced"}

// generateOrders returns n orders, the same for the same seed. Sellers follow a Zipf law: a few of them take part in very many
// orders, as in a real shop. These are the keys that tasks conflict on.
func generateOrders(n int, seed uint64) []order {
	rng := rand.New(rand.NewPCG(seed, uint64(n)))
	sellers := max(n/ordersPerSeller, fewestSellers)
	zipf := rand.NewZipf(rng, zipfExponent, 1, uint64(sellers-1))
	at := firstPurchase
	orders := make([]order, n)
	for i := range orders {
		at = at.Add(time.Duration(rng.ExpFloat64() * float64(90*time.Second))).Truncate(time.Second)
		o := order{
			PurchasedAt: at,
			ID:          fmt.Sprintf("A%06d", 100_000+i),
			Status:      statuses[rng.IntN(len(statuses))],
			Sellers:     drawSellers(rng, zipf),
		}
		o.Items = len(o.Sellers) + int(rng.ExpFloat64()*0.8)
		o.ValueCents = int64(o.Items) * int64(math.Exp(8+rng.NormFloat64()*0.8)) // around 30 for each item
		orders[i] = o
	}
	return orders
}

// drawSellers returns one to three different sellers, mostly one.
func drawSellers(rng *rand.Rand, zipf *rand.Zipf) []string {
	count := 1
	switch p := rng.Float64(); {
	case p < 0.05:
		count = 3
	case p < 0.20:
		count = 2
	}
	drawn := make([]string, 0, count)
	seen := map[uint64]bool{}
	for len(drawn) < count {
		number := zipf.Uint64() + 1
		if seen[number] {
			continue
		}
		seen[number] = true
		drawn = append(drawn, fmt.Sprintf("S%04d", number))
	}
	return drawn
}
