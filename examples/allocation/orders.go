package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// order is what a customer bought. Each of its sellers ships some pieces.
type order struct {
	ID     string `json:"id"`
	Pieces []take `json:"pieces"`
}

// take is what an order takes from the stock of a seller.
type take struct {
	Seller string `json:"seller"`
	Pieces int    `json:"pieces"`
}

// load returns the orders of the file, or generated ones, and where they are from.
func load(o options) (orders []order, source string, err error) {
	if o.Orders == "" {
		return generate(o.N, o.Seed), "generated", nil
	}
	f, err := os.Open(o.Orders)
	if err != nil {
		return nil, "", fmt.Errorf("the orders cannot be read: %w", err)
	}
	defer f.Close()
	if orders, err = read(f, o.N); err != nil {
		return nil, "", fmt.Errorf("%s cannot be used: %w", o.Orders, err)
	}
	return orders, "from " + filepath.Base(o.Orders), nil
}

// read reads at most n orders from CSV with a header.
func read(r io.Reader, n int) (orders []order, err error) {
	in := csv.NewReader(r)
	header, err := in.Read()
	if err != nil {
		return nil, fmt.Errorf("the header: %w", err)
	}
	var at [3]int
	for i, name := range []string{"order_id", "items", "seller_ids"} {
		if at[i] = slices.Index(header, name); at[i] < 0 {
			return nil, fmt.Errorf("the header has no column %s", name)
		}
	}
	for len(orders) < n {
		row, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		line, _ := in.FieldPos(0)
		pieces, err := strconv.Atoi(row[at[1]])
		sellers := strings.Fields(row[at[2]])
		if err != nil || pieces < len(sellers) || len(sellers) == 0 || row[at[0]] == "" {
			return nil, fmt.Errorf("line %d: an order needs an ID, sellers, and at least an item of each", line)
		}
		orders = append(orders, newOrder(row[at[0]], pieces, sellers))
	}
	if len(orders) == 0 {
		return nil, errors.New("there is no order")
	}
	return orders, nil
}

// newOrder divides the pieces of an order among its sellers.
func newOrder(id string, pieces int, sellers []string) order {
	o := order{ID: id}
	for i, seller := range sellers {
		share := pieces / len(sellers)
		if i < pieces%len(sellers) {
			share++
		}
		o.Pieces = append(o.Pieces, take{seller, share})
	}
	return o
}

// generate returns n orders, the same for the same seed. A few sellers are in great demand.
func generate(n int, seed uint64) []order {
	random := rand.New(rand.NewPCG(seed, uint64(n)))
	zipf := rand.NewZipf(random, 1.2, 1, uint64(max(n/5, 10)))
	orders := make([]order, n)
	for i := range orders {
		sellers := []string{fmt.Sprintf("S%03d", zipf.Uint64())}
		if second := fmt.Sprintf("S%03d", zipf.Uint64()); random.IntN(4) == 0 && second != sellers[0] {
			sellers = append(sellers, second)
		}
		orders[i] = newOrder(fmt.Sprintf("A%05d", 10_000+i), len(sellers)+random.IntN(3), sellers)
	}
	return orders
}

// stockFor returns how many pieces each seller has: as many as are ordered, except that the ones in the greatest demand
// lack some.
func stockFor(orders []order) map[string]int {
	stock := map[string]int{}
	for _, o := range orders {
		for _, t := range o.Pieces {
			stock[t.Seller] += t.Pieces
		}
	}
	for seller, pieces := range stock {
		if pieces >= 30 {
			stock[seller] -= pieces / 20
		}
	}
	return stock
}

// divide returns runs of so many orders.
func divide(orders []order, each int) (runs []allocation) {
	for chunk := range slices.Chunk(orders, each) {
		runs = append(runs, allocation{Run: fmt.Sprintf("R%02d", len(runs)+1), Orders: chunk})
	}
	return runs
}
