package doctor

import (
	"slices"
	"strings"
	"testing"
)

func TestAQueueCountsWithItsLanesAsOne(t *testing.T) {
	t.Parallel()
	f := Facts{Servings: 1, Queues: []Queue{
		{Name: "audit", Pending: 1, Served: true},
		{Name: "orders", Pending: 1, Taken: 2},
		{Name: "orders@17-1Mk", Pending: 10, Waiting: 3},
		{Name: "orders@63-00Z", Pending: 100},
	}}
	got := f.folded()
	want := []folded{{Queue: f.Queues[0]}, {Queue: Queue{Name: "orders", Pending: 111, Waiting: 3, Taken: 2}, Lanes: 2}}
	if !slices.Equal(got, want) {
		t.Fatalf("the queues are %+v, want %+v", got, want)
	}
	where := func() (all []string) {
		for _, finding := range unserved(f) {
			all = append(all, finding.Where+" "+finding.What)
		}
		return all
	}
	if all := where(); len(all) != 2 || !strings.Contains(all[0], "has taken 2 tasks") || !strings.Contains(all[1], "3 of its tasks wait for keys, 111 for slots") {
		t.Errorf("of an unserved queue there is said %q", all)
	}
	f.Queues[1].Taken = 0
	for i := range f.Queues[1:] {
		f.Queues[1+i].Served = true
	}
	f.Queues[2].Paused = true
	if all := where(); len(all) != 1 || !strings.Contains(all[0], "1 of the queue and its 2 lanes in use are paused") {
		t.Errorf("of a queue with one paused lane there is said %q", all)
	}
	f.Queues[1].Paused, f.Queues[3].Paused = true, true
	if all := where(); len(all) != 1 || !strings.HasPrefix(all[0], "queue orders it is paused") {
		t.Errorf("of a paused queue there is said %q", all)
	}
}
