package line

import "testing"

func FuzzDeadlineOf(f *testing.F) {
	for _, seed := range []string{
		"", "\x48\x01", "\x48", "\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x09\x00",
		"\x0f", "\x48\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, message string) {
		if at := deadlineOf(message); at < 0 {
			t.Errorf("the deadline is %v", at)
		}
	})
}
