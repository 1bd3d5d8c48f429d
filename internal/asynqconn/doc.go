// Package asynqconn is the seam between asynq and Redis: the client that an asynq server speaks through.
//
// asynq keeps its tasks by a small set of Lua scripts. A [Conn] recognises them by their SHA-1, which a test pins for
// the version of asynq that this module is built with, and stands between asynq and Redis where asynq itself cannot be
// changed:
//
//   - [Tasks] is told of each task that is fetched, and may answer its acknowledgement.
//   - An acknowledgement is sent although its context has ended, and again while the slot of its queue moves.
//   - A server fetches no task until Redis is found fit. A fetch that fails is slowed down. For 30 s after that asynq
//     is told of no tasks to recover, because those that have only waited are put back.
//   - An idle server is woken when a task is ready.
//   - [Enqueuer] is the client of an asynq.Client, and [NewFirings] makes that of a scheduler which several processes
//     have.
//
// Every other command passes unchanged.
//
// Scripts of another version of asynq pass unchanged too. Those that fetch or acknowledge a task are then recognised by
// the names of their keys, and the first one is logged.
package asynqconn
