// Package ends tells programs that a task has ended for good, and lets them wait for that.
//
//   - A [Mark] is written by the script that ends the task, if somebody is to hear of the end: so no crash comes between the
//     two. It is a member of a sorted set in the slot of the task's queue, by the time from which any server may tell it.
//   - A [Teller] calls back for the ends of its own process at once. It keeps the mark while the callback runs, and removes it
//     afterwards. It takes over marks whose process has not done so, and looks for tasks that another program has archived.
//   - [Waiters] are the callers of this process that wait for tasks to end. Each task names in its hash the channels of those
//     who wait; the script that ends it sends them a notice if it finds a flag of its queue. Every second the tasks are looked
//     at, too, so a notice that is lost costs a second.
package ends
