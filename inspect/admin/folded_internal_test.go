package admin

import (
	"reflect"
	"testing"
)

func TestAQueueIsListedOnceWithItsLanes(t *testing.T) {
	t.Parallel()
	got := folded([]queueCount{{Queue: "audit", Count: 1}, {Queue: "orders@17-1Mk", Count: 2}, {Queue: "orders@63-00Z"}, {Queue: "orders", Count: 4}})
	want := []queueCount{{Queue: "audit", Count: 1}, {Queue: "orders", Count: 6, Lanes: []queueCount{{Queue: "orders@17-1Mk", Count: 2}}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the queues are %+v, want %+v", got, want)
	}
}
