package simulate

const (
	maxKeys  = 3 // of one lock
	maxNodes = 9
)

// request is the kind of a request to a node.
type request uint8

const (
	acquire request = iota
	renew
	extend // a renewal too: of the lease, not for the commit
	retake // an acquire of a lease that has its tokens, for a node that has lost it
	release
	abandon // a release where the outcome of the acquire is unknown
)

// message is a request to a node, and later its reply.
type message struct {
	request request
	keys    uint8 // how many
	node    uint8
	slot    int16
	attempt uint32
	process uint32 // of the client: another one does not know of this message
	epoch   uint32 // of the node: a connection ends with the process behind it
	number  uint32 // of a renewal
	key     [maxKeys]uint16
	owner   uint64
	ttl     int64 // ms
	block   int64
	tokens  [maxKeys]int64 // acquire and retake: the proposed top; renew: the tokens; reply: the counters

	// The reply.
	ok      bool
	holder  uint64 // who holds the key that was refused
	instant uint64 // when the node did it, among all that all nodes do
}

// mailbox holds the messages under way. Each message has one event that refers to it.
type mailbox struct {
	all  []message
	free []uint32
}

func (m *mailbox) take() uint32 {
	if n := len(m.free); n > 0 {
		i := m.free[n-1]
		m.free = m.free[:n-1]
		return i
	}
	m.all = append(m.all, message{})
	return uint32(len(m.all) - 1)
}

func (m *mailbox) drop(i uint32) { m.free = append(m.free, i) }
