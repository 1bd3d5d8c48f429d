// Package stack grows the stacks of goroutines before they need it.
package stack

// size is how much stack the longest way of a task through asynq, the locks and go-redis takes.
const size = 6 << 10

// Grow gives the calling goroutine a stack with room for 6 KiB more. A new goroutine has 2 KiB, and Go copies its stack
// each time it is full, which takes the longer the more calls are under way. So call Grow in the first function of a
// short-lived goroutine that will call deeply: one early copy takes a quarter of the time of two or three late ones.
//
//go:noinline
func Grow() {
	var room [size]byte
	touch(&room)
}

// touch keeps the compiler from removing the room.
//
//go:noinline
func touch(room *[size]byte) { room[0] = 1 }
