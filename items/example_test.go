package items_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/railtoken/railtoken/items"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
	"github.com/railtoken/railtoken/worker/embeddedredis"
)

// Run is a warehouse run over some orders.
type Run struct{ Orders []Order }

// Order is one of them.
type Order struct{ ID string }

// A warehouse run allocates three orders, one of which an audit holds. It goes on without that one and reports it.
func Example() {
	check := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	server, err := embeddedredis.Start()
	check(err)
	defer server.Close()
	at := worker.Redis{Addr: server.Addr()}
	w, err := worker.New(worker.Config{Redis: at, Logger: slog.New(slog.DiscardHandler)})
	check(err)
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()

	allocate := func(ctx context.Context, _ Order) error {
		lease, _ := locking.FromContext(ctx)
		_, err := lease.Fence(ctx) // so that the database can refuse smaller ones
		return err
	}
	finish := func(_ context.Context, r Run, report items.Report) error {
		fmt.Println(report.Done, "of", report.Total, "orders are allocated")
		for _, item := range report.Items {
			fmt.Println("order", r.Orders[item.Index].ID, "is", item.State, "because", item.Key, "is held by", item.Holder)
		}
		stop()
		return nil
	}
	check(worker.HandleItems(w, "warehouse:allocate", items.Handler[Run, Order]{
		Split:    func(r Run) []Order { return r.Orders },
		ItemKeys: func(o Order) []string { return []string{middleware.Key("order", o.ID)} },
		Run:      allocate,                   // one order, under its own lease and fencing token
		Policy:   items.GoOn, Finish: finish, // which gets a report of all orders
	}))

	audited, err := w.Locker().Acquire(ctx, []string{"order:1042"}, locking.Options{Label: "an audit"})
	check(err)
	client, err := worker.NewClient(at)
	check(err)
	_, err = client.Enqueue(ctx, "warehouse:allocate", Run{[]Order{{"1041"}, {"1042"}, {"1043"}}})
	check(err)
	check(client.Close())
	check(w.Start(ctx))
	<-ctx.Done()
	check(audited.Release(context.Background()))
	check(w.Shutdown())
	// Output:
	// 2 of 3 orders are allocated
	// order 1042 is refused because order:1042 is held by an audit
}
