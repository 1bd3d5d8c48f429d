package pipeline

const (
	// size is how much stack the longest way of a task's handler through the locks and go-redis takes.
	size = 6 << 10
	// deepSize is how much it takes to acknowledge a task through asynq and go-redis, and to tell an observer at the end.
	deepSize = 12 << 10
)

// GrowStack gives the calling goroutine a stack with room for 6 KiB more. A new goroutine has 2 KiB, and Go copies its stack
// each time it is full, which takes the longer the more calls are under way. So call Grow in the first function of a
// short-lived goroutine that will call deeply: one early copy takes a quarter of the time of two or three late ones.
//
//go:noinline
func GrowStack() {
	if never {
		var room [size]byte
		touch(&room[0])
	}
}

// GrowStackDeep is Grow with room for 12 KiB, for a goroutine that acknowledges tasks.
//
//go:noinline
func GrowStackDeep() {
	if never {
		var room [deepSize]byte
		touch(&room[0])
	}
}

// never is always false. Go makes room for all variables of a function when it begins, but clears only those that it
// comes to.
var never bool

// touch keeps the compiler from removing the room.
//
//go:noinline
func touch(first *byte) { *first = 1 }
