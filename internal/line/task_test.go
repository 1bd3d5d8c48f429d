package line

import "testing"

func FuzzEntry(f *testing.F) {
	f.Add("default", "id")
	f.Add("", "")
	f.Add("3:x", "7:\x00\n")
	f.Fuzz(func(t *testing.T, queue, id string) {
		want := Task{Queue: queue, ID: id}
		got, err := ParseEntry(want.Entry())
		if err != nil || got != want {
			t.Fatalf("%+v comes back as %+v, %v", want, got, err)
		}
	})
}

func FuzzKeyOf(f *testing.F) {
	f.Add("order:1")
	f.Add("{}\x00%")
	f.Fuzz(func(t *testing.T, key string) {
		if got, ok := KeyOf(Names{}.Waiters(key)); !ok || got != key {
			t.Fatalf("%q comes back as %q, %v", key, got, ok)
		}
	})
}
