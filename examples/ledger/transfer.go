package main

import (
	"math/rand/v2"
	"strconv"

	"github.com/railtoken/railtoken/middleware"
)

// The two task types and their queues.
const (
	transferType, transferQueue = "ledger:transfer", "transfers"
	settleType, settleQueue     = "ledger:settle", "settlements"
)

// merchants is how many of the accounts receive settlements.
const merchants = 5

// transfer is the payload of both task types.
type transfer struct {
	ID       int
	From, To int
	Cents    int64
}

// keys are both accounts, locked together or not at all.
func (t transfer) keys() []string {
	return []string{middleware.Key("account", strconv.Itoa(t.From)), middleware.Key("account", strconv.Itoa(t.To))}
}

func (t transfer) touches(other transfer) bool {
	return t.From == other.From || t.From == other.To || t.To == other.From || t.To == other.To
}

// makeTransfers makes n transfers between accounts. Each fourth is a settlement: it pays a merchant.
func makeTransfers(n, accounts int) []transfer {
	random := rand.New(rand.NewPCG(1, uint64(n))) //nolint:gosec // the same transfers in each run
	made := make([]transfer, n)
	for i := range made {
		t := transfer{ID: i, To: random.IntN(accounts), Cents: 1 + random.Int64N(999)}
		if t.settles() {
			t.To = random.IntN(merchants)
		}
		for t.From = t.To; t.From == t.To; {
			t.From = random.IntN(accounts)
		}
		made[i] = t
	}
	return made
}

// settles reports whether the transfer is a settlement.
func (t transfer) settles() bool { return t.ID%4 == 3 }
