package pipeline

// state is how far a call is.
type state int

const (
	fresh state = iota
	queued
	sent
	answered
	withdrawn
)

// Call is one call of a script. Reply and Err are set once it is answered. It is made once.
type Call struct {
	Reply any
	Err   error

	// Node is a number for the caller's own use.
	Node int

	// Late, if not nil, is called once the server has not answered the call, or an earlier one, for longer than Patience.
	// The answer may still come, even before Late is called. No lock of the Server is held.
	Late func(*Call)

	command Command
	done    func(*Call)
	answer  chan struct{} // for a caller that waits: gets a value instead of a call of done
	state   state         // guarded by Server.mu; unused in a call that its own goroutine sends

	previous, next *Call // in the queue
}

// NewCall returns a call of script. If [Server.Send] makes it, done is called once it is answered or has failed.
func NewCall(done func(*Call), script *Script, keys []string, args ...any) *Call {
	command := script.Command(keys, len(args))
	command.Add(args...)
	return &Call{command: command, done: done}
}

// Of sets c to a call of command, and returns c. For node and done, see Node and [NewCall].
func (c *Call) Of(command Command, node int, done func(*Call)) *Call {
	*c = Call{command: command, Node: node, done: done}
	return c
}
