package main

import "time"

// order is what a customer bought: what the CSV file and the generator give, and the tasks are made from.
type order struct {
	PurchasedAt time.Time
	ID          string
	Status      string
	Items       int
	ValueCents  int64
	Sellers     []string
}

// part is what one seller ships of an order.
type part struct {
	SellerID string `json:"seller_id"`
	Items    int    `json:"items"`
}

// parts splits the items of an order among its sellers: evenly, the first ones get what is left over.
func (o order) parts() []part {
	parts := make([]part, len(o.Sellers))
	for i, seller := range o.Sellers {
		items := o.Items / len(o.Sellers)
		if i < o.Items%len(o.Sellers) {
			items++
		}
		parts[i] = part{SellerID: seller, Items: items}
	}
	return parts
}
