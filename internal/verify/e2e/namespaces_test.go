package e2e_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
)

// Two soaks with the same queues, keys and tasks share a Redis, each in a namespace and with a user who may use no other names.
func TestTwoSoaksInNamespacesShareNothing(t *testing.T) {
	t.Parallel()
	for _, order := range []middleware.Order{middleware.BestEffort, middleware.FIFO} {
		t.Run(order.String(), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			root := server.Client(t)
			t.Run("side by side", func(t *testing.T) {
				for _, namespace := range []string{"shop-a", "shop-b"} {
					setUser(t, root, namespace)
					plain := server.Client(t, func(o *redis.Options) { o.Username, o.Password = namespace, namespace })
					client, err := attach.Namespaced(plain, namespace, true)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = client.Close() })
					t.Run(namespace, func(t *testing.T) {
						t.Parallel()
						tasks, dbServer := *soakTasks/2, redistest.Start(t)
						s := &soak{
							T: t, soakMode: soakMode{share: 2, recorded: true, order: order}, tasks: tasks, kills: max(*soakKills/2, 2**soakEvery),
							server: server, dbServer: dbServer, client: client, db: dbServer.Client(t), queues: []string{"audit", "allocate"},
							namespace: namespace,
						}
						s.run(rand.New(rand.NewPCG(*soakSeed, 0)))
					})
				}
			})
			for _, name := range root.Keys(t.Context(), "*").Val() {
				if !strings.HasPrefix(name, "shop-a:") && !strings.HasPrefix(name, "shop-b:") {
					t.Errorf("%s is in no namespace", name)
				}
			}
		})
	}
}
