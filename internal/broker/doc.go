// Package broker stands between asynq and Redis: it is the client through which an asynq server talks to Redis.
//
// # A task's life
//
//  1. Enqueued: attach.Producer sends asynq's script through an [Enqueuer]; the task's keys are recorded in its hash.
//  2. Fetched: asynq asks for a task (Conn.fetch). Package intake takes as many as the server has free slots, in one
//     script (Intake.Fetch, fetch.lua), and keeps them in memory until asynq asks for the next one (Intake.Take). asynq's call
//     ends with the first task that comes into memory, whatever has brought it.
//  3. Locked: the same script takes the locks of the recorded keys, if they are on this Redis (grant.lua). Keys that are found
//     in the tasks are locked by the next fetch (Intake.find, fetch.admitted). If the locks are elsewhere, the Locker is asked
//     before asynq has the task (Intake.lock, lock.LockFetched).
//  4. Refused at the fetch, as the first: if a key is held and nobody is parked on it, package middleware may have the task
//     wait in memory for the lease of a task of this server (Gate.succeed), or park it without a run, by a call of its own
//     (lock.ParkFetched).
//  5. Refused behind others, or in order: the script of the fetch parks the task (park_fetched.lua of package line).
//  6. Refused in its slot: asynq calls middleware.Lock (lock.process). Its run takes over the lease that came with the task
//     (run.claim), or tries to lock the keys (run.try). If a key is held, the strategy decides (run.decide): wait there
//     (run.waitFor), end the task, or park it.
//  7. Parked: the run ends with an error (run.park), and asynq sends its script retry or archive. The Conn asks [Tasks]
//     before it sends it (Conn.acknowledge). Package line answers with a script of its own, which moves the task to the
//     retry set and adds it to the waiters of the key (Run.carryOut, park.lua).
//  8. Woken: the release of the key moves the first waiter to the head of its queue (wake.lua, in the script of step 10 or
//     by Engine.Wake). It is fetched next, as in step 2. Its own timer, which is later, moves it to the tail.
//  9. Handled: the handler runs under the lease (run.handle), which renews itself.
//  10. Acknowledged: the run leaves the release of the lease to the acknowledgement (run.giveBack, line.Run.Release), and
//     asynq sends done, retry or archive. Package intake sends it in one script with the release, the wake of the next
//     waiters and a fetch for the free slots (Intake.Acknowledge, ack.lua).
//
// # What a Conn changes
//
// asynq manages its tasks with a small set of Lua scripts. A [Conn] recognises them by their SHA-1, which a test pins
// to the version of asynq that this module is built with, and changes what asynq has no option for:
//
//   - [Tasks] learns of each task that is fetched, and may answer its acknowledgement.
//   - A task whose fetch was not answered goes back to its queue. asynq would count it as failed a minute later.
//   - An acknowledgement is sent even if its context has ended, and is sent again while the slot of its queue moves.
//   - A server fetches no task until Redis has passed its checks. After a fetch that fails it pauses. After an
//     outage of Redis, asynq's first look for tasks to recover finds none, because those that have only waited are put
//     back.
//   - With lanes (package lanes) a server works on its queues in all lanes, and asynq knows only the queues. What asynq's
//     forwarder, janitor and recoverer do for a queue is done in those lanes, too, in which a look finds something.
//   - An idle server is woken when a task is ready: by this process ([Wakes]), or by Redis, where a call waits for one
//     or, in a lane, a message tells of it.
//   - [Enqueuer] is the client of an asynq.Client, and [NewFirings] makes one for a scheduler that runs in several
//     processes.
//
// Every other command is passed on unchanged.
//
// [Recognise] finds out whether the asynq of this program is one whose scripts are known. If it is not, its scripts that
// fetch or acknowledge a task are told by the names of their keys. Once one is seen, a Conn fetches no more tasks, or, if
// that is asked for, passes on every script unchanged.
package broker
