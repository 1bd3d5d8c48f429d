package traces

import (
	"github.com/railtoken/railtoken/middleware"
)

// setting is how tasks and keys are, and which switches the model needs for that.
type setting struct {
	name     string
	keys     []string
	jobs     [][]string // the keys of each task
	order    middleware.Order
	found    bool // the workers find the keys in the tasks
	switches string
}

// open leaves to each fetch how many tasks it asks for, and whether it takes their locks: a server does so only once it knows their type.
// In memory, a task that is woken beside the one that takes a key follows that one.
const (
	open     = "-DPASS=0 -DLEAVE=1 -DFEWER=1 -DSLOTS=3 -DPLAIN=1 -DLATER=1 "
	inMemory = open + "-DSUCCESSOR=2 -DBLOCK=8 -DFOLLOW=1 -DAPART=1 "
)

var settings = []setting{
	{
		name: "one-key", keys: []string{"k0"}, jobs: [][]string{{"k0"}, {"k0"}, {"k0"}, {"k0"}},
		switches: inMemory + "-DTASKS=4",
	},
	{
		name: "two-keys", keys: []string{"k0", "k1"}, jobs: [][]string{{"k0"}, {"k1"}, {"k0"}},
		switches: inMemory + "-DKEYSET=3",
	},
	{
		name: "in-order", keys: []string{"k0"}, jobs: [][]string{{"k0"}, {"k0"}, {"k0"}}, order: middleware.StrictFIFO,
		switches: open + "-DORDER=1",
	},
	{
		name: "unrecorded", keys: []string{"k0"}, jobs: [][]string{{"k0"}, {"k0"}, {"k0"}}, found: true,
		switches: inMemory,
	},
}

// Events of the model that a run may have had.
const (
	mayCrash   = 1
	mayLose    = 2
	mayBeLate  = 4
	mayExpire  = 8
	mayFail    = 128 + 256
	mayGoBack  = 512
	mayForward = 1024
	mayStop    = 2048
)

// plot is what happens in a run.
type plot struct {
	name string
	in   string // the only setting for it; any when empty
	mask int
	most int // faults that the run does not show
	play func(p *play)
}

var plots = []plot{
	{name: "plain", play: func(p *play) { p.begin(p.brief(0)...) }},
	{name: "fails", play: func(p *play) { p.begin(p.brief(1)...) }},
	{name: "held", play: (*play).heldFirst},
	{name: "timer", play: (*play).timer},
	{name: "lost-ack", mask: mayLose | mayBeLate, most: 3, play: func(p *play) { p.faulty(lost, "active,") }},
	{name: "lost-fetch", mask: mayLose, most: 3, play: func(p *play) { p.faulty(lost, "pending,") }},
	{name: "expires", in: "in-order", play: (*play).expire},
	{name: "late-fetch", mask: mayLose | mayBeLate, most: 3, play: (*play).lateFetch},
	{name: "late-ack", mask: mayLose | mayBeLate, most: 3, play: (*play).lateAck},
	{name: "stop", mask: mayStop, most: 1, play: (*play).stopOne},
	{name: "crash", mask: mayCrash, play: (*play).crash},
}
