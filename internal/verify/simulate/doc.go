// Package simulate runs the Redlock protocol with fencing tokens (docs/design.md, 3.3 to 3.7) in virtual time, with all
// the faults of real networks and machines, and counts violations of its promises.
//
// The decisions are those of production: quorum.Acquisition with its Commit, quorum.Poll, quorum.Clock,
// quorum.Validity, and restartguard.Vet. The rest is modelled: the servers with their scripts ([node]), the network,
// the clocks ([machine]), and the loop that passes answers to the decisions ([client]).
//
// A run is a function of its [Scenario], its seed and the number of acquisitions: one goroutine takes events from a
// heap, and every random choice comes from one generator.
//
// # What is checked
//
// A token is checked when a lease would return it: when its lock is committed, and its validity, as the client measures
// it, has not ended. For all tokens of one key:
//
//   - No two blocks of committed tokens overlap, ever.
//   - A committed block is above every block whose commit was complete before the first ACQUIRE of its lease was sent.
//   - Any two committed leases share a node. On each node that they share, their tokens have the order in which the
//     node held them: the theorem of docs/design.md, 3.4.
//   - No node grants an acquisition after its client has undone it there: the key would stay locked without a holder.
//   - In true time, tokens are returned in ascending order, including those of hand-offs.
//   - No two leases are valid at the same true time.
//
// The last two hold only while the clocks meet the assumptions about them. Some scenarios break them on purpose: a
// server's wall clock is set forward, or a machine is suspended and its wall clock set back within the same second. For
// the leases that are affected, which the [Result] counts, only the first four are checked.
package simulate
