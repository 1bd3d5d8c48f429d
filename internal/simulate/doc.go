// Package simulate runs the Redlock protocol with fencing tokens (docs/design.md, 3.3 to 3.7) in virtual time, on a network and on machines
// that do everything that real ones may do, and counts what must never happen.
//
// The decisions are those of production: quorum.Acquisition, its Commit, quorum.Poll, quorum.Clock and quorum.Validity, and
// guard.Vet for the restart guard. What is modelled is the world around them: the servers with their scripts ([node]), the
// network, the clocks ([machine]), and the loop that feeds answers to the decisions ([client]).
//
// A run is a function of its [Scenario], its seed and the number of acquisitions: one goroutine takes events from a heap, and
// every random choice comes from one generator.
//
// # What is checked
//
// A token is checked at the moment at which a lease would return it: its lock is committed and its validity, measured by the
// client itself, is not over. For all tokens of one key:
//
//   - No two blocks of committed tokens overlap, ever.
//   - A committed block is above every block whose commit was complete before the first ACQUIRE of its lease was sent.
//   - Two committed leases share a node. On each node that they share, their tokens have the order in which the node held them:
//     the theorem of docs/design.md, 3.4.
//   - No node grants an acquire that its client has taken back there before it came: the key would be locked by nobody.
//   - The tokens, those of hand-ons too, are returned in rising order of true time.
//   - No two leases are valid at the same true time.
//
// The last two hold only while the clocks keep to their assumptions. Where a scenario breaks them on purpose (a server's wall
// clock is set forward, or a machine is suspended and has its wall clock set back within the same second), only the
// first four are checked for the leases that were hit, and the [Result] counts these leases.
package simulate
