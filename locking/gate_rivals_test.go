package locking_test

import (
	"sync"
	"testing"
	"time"

	"github.com/railtoken/railtoken/locking"
)

// Processes with one waiter at a time, as workers have, must not overtake those that have waited for longer.
func TestAProcessThatComesBackOvertakesNobody(t *testing.T) {
	virtually(t, func(t *testing.T) {
		const processes, rounds = 5, 60
		gates := otherProcesses(t, processes, locking.GateOptions{})
		var mu sync.Mutex
		var holders []int
		var wg sync.WaitGroup
		for i, g := range gates {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				for range rounds {
					lease, err := locking.Wait(t.Context(), g, []string{"order"}, locking.Options{})
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					holders = append(holders, i)
					mu.Unlock()
					time.Sleep(5 * time.Millisecond)
					release(t, lease)
					time.Sleep(2 * time.Millisecond)
				}
			})
		}
		wg.Wait()
		last := map[int]int{}
		for n, who := range holders {
			if before, ok := last[who]; ok && n-before > 2*processes {
				t.Errorf("%d holders came between two turns of one process, want about %d", n-before-1, processes-1)
			}
			last[who] = n
		}
	})
}

// Between two processes there is nobody to let go first, which they find out in the second race of each.
func TestAProcessWithoutRivalsSoonTakesItsTurnAtOnce(t *testing.T) {
	virtually(t, func(t *testing.T) {
		gates := otherProcesses(t, 2, locking.GateOptions{})
		holder := acquire(t, gates[0], locking.Options{}, "order")
		for turn := range 40 {
			next := inLine(t.Context(), gates[(turn+1)%2], locking.Options{}, "order")
			time.Sleep(5 * time.Millisecond)
			began := time.Now()
			release(t, holder)
			o := <-next
			if o.err != nil {
				t.Fatal(o.err)
			}
			second := turn == 2 || turn == 3
			if took := o.at.Sub(began); took > 0 && !second {
				t.Errorf("turn %d began %v after the release, want at once", turn, took)
			}
			holder = o.lease
		}
		release(t, holder)
	})
}
