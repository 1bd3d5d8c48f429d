package pipeline

// state is where a call is.
type state int

const (
	fresh state = iota
	queued
	sent
	answered
	withdrawn
)

// Call is one call of a script. Reply and Err are set once it is answered.
type Call struct {
	Reply any
	Err   error

	// Node is a number of the caller's own, by which it knows the call.
	Node int

	// Late, if it is not nil, is called once the server has had the call, or one before it, for longer than Patience.
	// The answer may still come, before or after. It is called without any lock of the server held.
	Late func(*Call)

	command Command
	done    func(*Call)
	answer  chan struct{} // closed instead of calling done, for a caller that waits
	state   state         // guarded by Server.mu, except that a call which its own goroutine sends needs none

	previous, next *Call // in the queue
}

// NewCall returns a call of script. When it is made by [Server.Send], done is called once it is answered or has failed.
func NewCall(done func(*Call), script *Script, keys []string, args ...any) *Call {
	command := script.Command(keys, len(args))
	command.Add(args...)
	return &Call{command: command, done: done}
}

// Of makes c a call of command, as NewCall would, with a number.
func (c *Call) Of(command Command, node int, done func(*Call)) *Call {
	*c = Call{command: command, Node: node, done: done}
	return c
}
