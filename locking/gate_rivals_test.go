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

// Two processes that alternate have nobody to let go first. They find out in the second race of each, and ask again once
// in a while.
func TestAProcessWithoutRivalsTakesItsTurnAtOnce(t *testing.T) {
	virtually(t, func(t *testing.T) {
		gates := otherProcesses(t, 2, locking.GateOptions{})
		holder := acquire(t, gates[0], locking.Options{}, "order")
		for turn := range 80 {
			next := inLine(t.Context(), gates[(turn+1)%2], locking.Options{}, "order")
			time.Sleep(5 * time.Millisecond)
			began := time.Now()
			release(t, holder)
			o := <-next
			if o.err != nil {
				t.Fatal(o.err)
			}
			race := turn/2 + 1 // of its process
			if took := o.at.Sub(began); (took > 0) != (race == 2 || race == 35) {
				t.Errorf("race %d was won after %v", race, took)
			}
			holder = o.lease
		}
		release(t, holder)
	})
}

// A process that is farther from the server loses any race in which the others do not hold back.
func TestAFarProcessGetsItsTurn(t *testing.T) {
	virtually(t, func(t *testing.T) {
		gates := processesAt(t, locking.GateOptions{}, 0, 0, 200*time.Microsecond)
		holder := acquire(t, gates[0], locking.Options{}, "order")
		var far <-chan outcome
		for turn := range 120 {
			if turn == 20 { // the near ones take themselves for the only ones
				far = inLine(t.Context(), gates[2], locking.Options{}, "order")
			}
			next := inLine(t.Context(), gates[(turn+1)%2], locking.Options{}, "order")
			time.Sleep(5 * time.Millisecond)
			release(t, holder)
			select {
			case o := <-next:
				holder = o.lease
			case o := <-far:
				release(t, o.lease)
				release(t, (<-next).lease)
				return
			}
		}
		t.Error("it waits for more than 100 turns")
		release(t, holder)
		release(t, (<-far).lease)
	})
}
