// Package broker stands between asynq and Redis: it is the client through which an asynq server talks to Redis.
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
//   - An idle server is woken when a task is ready: by this process ([Wakes]), or by Redis, where a call waits for one.
//   - [Enqueuer] is the client of an asynq.Client, and [NewFirings] makes one for a scheduler that runs in several
//     processes.
//
// Every other command is passed on unchanged.
//
// [Recognise] finds out whether the asynq of this program is one whose scripts are known. If it is not, its scripts that
// fetch or acknowledge a task are told by the names of their keys. Once one is seen, a Conn fetches no more tasks, or, if
// that is asked for, passes on every script unchanged.
package broker
