package broker

// Wakes tells the servers of a process that this process has put a task at the head of a queue.
type Wakes chan struct{}

// NewWakes returns Wakes for a number of servers. It keeps one wake for each of them, for servers that are not pausing.
func NewWakes(servers int) Wakes { return make(Wakes, servers) }

// Wake ends a present or the next pause of one server. It never waits: when as many wakes as there are servers are
// under way, each of them checks all of its queues afterwards.
func (w Wakes) Wake() {
	select {
	case w <- struct{}{}:
	default:
	}
}
