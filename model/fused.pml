/*
 * Locks that ride on asynq's own scripts: a fetch that takes the lock, an acknowledgement that passes it on. The model of a protocol that
 * is to come, levels 2 and 3 of the connection between asynq and Redis.
 *
 * scripts/model.sh checks this file exhaustively, once for each configuration; README.md says what is claimed and what is assumed.
 *
 * Switches, all set with -D:
 *   TASKS      how many tasks, all pending at the start           (3)
 *   WORKERS    how many worker processes                          (2)
 *   SLOTS      how many tasks a worker runs at once               (2)
 *   BUDGET     how many events of EVENTS happen in a run          (2)
 *   EVENTS     which events, a sum of the bits below              (all)
 *   LEVEL      3: fetch takes the lock, ack passes it; 2: fetch
 *              only looks at it, the handler takes it             (3)
 *   PASS       0: an ack releases the lock and passes it to no
 *              task in Redis, as the code does                    (1)
 *   KEYSET     which keys the tasks have, see below               (0: one key for all)
 *   ORDER      1: tasks of a key run in order (StrictFIFO)        (0)
 *   LEAVE      1: the fetch parks a refused task, or leaves it
 *              to its handler; 0: it parks all of them            (0)
 *   FOUND      1: keys are not recorded; a worker finds them in the
 *              tasks that it has fetched, and the next fetch takes
 *              their locks, or parks them (with LEVEL=2, PASS=0)  (0)
 *   FEWER      1: a fetch may take fewer tasks than there are slots   (0)
 *   PLAIN      1: a fetch may leave any task to its handler, without a
 *              look at its lock (with LEAVE)                      (0)
 *   FOLLOW     1: an ack that releases a key may wake one more task,
 *              to follow the one that takes it (with SUCCESSOR)   (0)
 *   LATER      1: a repeated ack that ends its run wakes no task
 *              itself; its worker does by another call, or a timer (0)
 *   APART      1: a successor is given back in one call and its lock is
 *              released in another, in any order (with SUCCESSOR) (0)
 *   SUCCESSOR  how many refused tasks a worker keeps in memory for
 *              a key that a run of its own holds, to hand the lease
 *              off to one of them when the run returns (with PASS=0)
 *                                                                 (0)
 *   BLOCK      with SUCCESSOR: tokens that a lease reserves       (2)
 *   RECOVERY   1: another worker frees the locks of a worker that is
 *              dead or silent, and takes its tasks back           (0)
 *   MUTANT     a protocol known to be wrong, see below            (0)
 *   REACH      assert that something interesting is never         (0)
 *              reached, to see that the model does reach it
 *   TRACED     explain a recorded run, see trace.pml
 *
 * Each step is one atomic script of Redis or one decision of a worker, and any step whose guard holds may come next. So a reply is as slow
 * as it likes, and a request that is slow to arrive is one that is sent later. What is special about a request that arrives late is that its
 * sender has stopped waiting for it: those are the masks lateAck and lateFetch.
 *
 * The call of an ack carries a fetch with a name of its own. When its caller gives the call up, the ack is repeated until it is answered, in
 * calls that carry other fetches (mask repeats), and the fetch is recalled by its name (mask recalls). Either may come first. What an ack
 * passes on, to a standby or a waiter, belongs to the ack itself, and its repetition says it again.
 *
 * A successor (SUCCESSOR) is a task that was refused, and waits in memory for the lease of a run of its worker. What is left open: how long it
 * waits, which of the runs hands off to it, and whether one does although it could, as when too little of the validity is left.
 *
 * A number of a run is a nonce: it is given out again only when nothing refers to it any more.
 */

#ifndef TASKS
#define TASKS 3
#endif
#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef SLOTS
#define SLOTS 2
#endif
#ifndef BUDGET
#define BUDGET 2
#endif
#ifndef EVENTS
#define EVENTS 4095
#endif
#ifndef LEVEL
#define LEVEL 3
#endif
#ifndef PASS
#define PASS 1
#endif
#ifndef KEYSET
#define KEYSET 0
#endif
#ifndef ORDER
#define ORDER 0
#endif
#ifndef LEAVE
#define LEAVE 0
#endif
#ifndef FOUND
#define FOUND 0
#endif
#ifndef FEWER
#define FEWER 0
#endif
#ifndef PLAIN
#define PLAIN 0
#endif
#ifndef FOLLOW
#define FOLLOW 0
#endif
#ifndef LATER
#define LATER 0
#endif
#ifndef APART
#define APART 0
#endif
#ifndef SUCCESSOR
#define SUCCESSOR 0
#endif
#if SUCCESSOR == 0
#undef BLOCK
#define BLOCK 1
#endif
#ifndef BLOCK
#define BLOCK 2
#endif
#ifndef RECOVERY
#define RECOVERY 0
#endif
#ifndef MUTANT
#define MUTANT 0
#endif
#ifndef REACH
#define REACH 0
#endif

/* The events that are bounded by BUDGET. */
#define CRASH      1  /* a worker is killed, and started again with nothing in memory */
#define LOSS       2  /* a reply is lost: the worker repeats an ack, and recalls a fetch */
#define LATE       4  /* a call arrives after its caller has given it up */
#define PAUSE      8  /* a lock expires although its owner lives: a pause, a slow reply, renewals that failed */
#define DOUBT     16  /* a lease has ended by its owner's clock although Redis still has the lock */
#define LEASELESS 32  /* asynq's lease of a task expires although its worker lives */
#define TIMEOUT   64  /* asynq gives up a handler (timeout, shutdown) whose function still runs */
#define RETRY    128  /* a handler fails, and is tried again */
#define ARCHIVE  256  /* a handler fails for the last time */
#define GIVEBACK 512  /* a task has been in memory for too long, and is given back */
#define TIMER   1024  /* the timer of a waiting task fires while its key is held */
#define STOP    2048  /* a worker shuts down */
#define SILENCE 4096  /* with RECOVERY: a worker lives, and has not reported for so long that it counts as dead */

/* The protocols known to be wrong. */
#define ACK_FORGETS       1  /* a repeated ack does not say again what the first one passed on */
#define FETCH_FORGETS     2  /* a lost fetch is not recalled: another one is sent */
#define FETCH_UNMARKED    3  /* a recalled fetch is not marked: it may still arrive */
#define PASS_UNGUARDED    4  /* an ack passes the key without a check of its owner */
#define ACK_UNRECALLED    5  /* the fetch of a lost ack is not recalled */
#define OWNER_REUSED      6  /* the owner value is worker and task, not a nonce */
#define FROM_REPLY        7  /* validity counts from the reply, not from before the fetch */
#define START_UNCHECKED   8  /* a task in memory starts without a check of its lease's validity */
#define STANDBY_EARLY     9  /* the standby starts when asynq gives up the handler, not when its function returns */
#define FUSED_EARLY      10  /* an ack passes the key before the handler's function has returned */
#define LEASELESS_KEEPS  11  /* asynq sends no ack because its lease is invalid, and the key is not released */
#define RETRY_KEEPS      12  /* retry and archive are not treated as acks: the key is kept */
#define RECOVERY_FREES   13  /* the recoverer's retry frees the key, as an ack does */
#define STOP_PASSES      14  /* an ack passes the key after shutdown has begun, and shutdown waits for functions only */
#define STOP_STRANDS     15  /* shutdown does not give back what is in memory */
#define STOP_HURRIES     16  /* shutdown does not wait for the replies of calls under way */
#define PASS_UNFENCED    17  /* a pass raises no fence */
#define PARK_UNTIMED     18  /* a waiting task is in no set that asynq empties by itself */
#define RELEASE_SILENT   19  /* a release outside of an ack wakes no task */
#define PARK_SWALLOWS    20  /* a woken task that parks on another key does not pass the wake on */
#define PASS_PARTIAL     21  /* a pass takes the one key of the task that has become free */
#define PASS_BLIND       22  /* a pass takes a waiter without a check where it is */
#define SYNCER_BY_ID     23  /* asynq's repeated ack is treated as one of the task's present run */
#define PARK_BLIND       24  /* the park does not check the lock once more */
#define ADMIT_ANY        25  /* in order: the fetch admits any task */
#define PASS_ANY         26  /* in order: the pass takes any waiter */
#define STANDBY_AHEAD    27  /* in order: the standby starts before the ack of the task before it is answered */
#define HEIR_GONE        28  /* an ack leaves the lock to a standby that was given back */
#define KEYS_TRUSTED     29  /* a handler runs under the recorded keys although its key function returns others */
#define ACK_BY_ID        30  /* an ack ends the task whichever run it is in, as asynq's own does */
#define HEIR_OVERRUN     31  /* an ack passes or releases the key although the standby has begun */
#define STANDBY_UNFENCED 32  /* a standby gets the fence of the task before it */
#define GIVEBACK_KEEPS   33  /* a task is given back without its lock */
#define RELEASE_UNGUARDED 34 /* a release outside of an ack deletes the lock without a check of its owner */
#define CONFLICT_KEEPS   35  /* keys that disagree: the recorded keys are not released before the plain path */
#define ADMIT_BLIND      36  /* the fetch does not check the lock */
#define STANDBY_STUCK    37  /* in order: a failed task leaves its key to the standby */
#define STANDBY_UNLOCKED 38  /* a standby is granted without a check whether the run before it still has the lock */
#define HEIR_ACTIVE      39  /* the lock is left to a standby that has begun only while its task is active */
#define PARK_LATER       40  /* the fetch looks at the lock, and the task is parked in a step of its own */
#define ACK_UNMARKED     41  /* the fetch of a lost ack is recalled, but not marked: the call may still arrive */
#define MARK_IGNORED     42  /* an ack that ends its run takes tasks although its fetch is marked */
#define REPEAT_ANSWERS   43  /* the reply to a repeated ack is taken for the answer to the fetch of its first copy */
#define STOP_UNRECALLED  44  /* shutdown does not wait for the recalls of the fetches of lost acks */
#define ADMIT_BEHIND     45  /* in order: the fetch admits a task behind one that waits */
#define COUNTS_TAKEN     46  /* a success counts although its lease has ended and another owner has had the key */

#define PARKED_AGAIN     47  /* the repetition of a lost fetch gives asynq a task that the first one has parked */

/* Of the successor. */
#define HAND_EARLY       48  /* the lease is handed off before the handler's function has returned */
#define HAND_UNCHECKED   49  /* the lease is handed off without a check of its validity */
#define HAND_OWNED       50  /* the ack after a hand-off has the owner value in it */
#define HAND_SENT        51  /* the lease is handed off although an ack with its owner value may be under way */
#define HAND_OVERRUN     52  /* hand-offs do not end with the block of tokens */
#define HAND_UNFENCED    53  /* the successor gets the token of the run before it */
#define KEEP_UNLEASED    54  /* the successor starts although asynq's lease of it is over */
#define KEEP_PARTLY      55  /* a task is kept that needs other keys than the run before it */
#define KEEP_ENDLESS     56  /* a successor to which no lease is handed off is never parked */
#define KEEP_STRANDS     57  /* shutdown does not give back or park the successor */
#define KEEP_PARKS       58  /* the successor is parked without a check of its run */
#define OWN_VALUE        59  /* a successor releases by an owner value of its own */
#define ACK_STRICT       60  /* the ack after a hand-off does not end its run, because the lock has another owner value than its own */
#define GIVEBACK_SILENT  61  /* a successor whose run is over releases the lock without a wake */

/* Of the recovery. */
#define SILENT_TRUSTS    62  /* a worker that is silent trusts its leases */
#define FREES_ANY        63  /* locks are freed that were taken during the silence, whose leases do not end with it */
#define BACK_UNCHECKED   64  /* a task is taken back without a check of its run: it has begun another one since the look */
#define BACK_IN_TWO      65  /* a task is taken out of the active ones, and made pending in a step of its own */

/* Keys: REC are those that the producer recorded, REAL those that the handler's key function returns. Bit k: key k. */
#if KEYSET == 0
#define KEYS 1
#define REC(t)  1
#define REAL(t) 1
#elif KEYSET == 1 /* one, both, the other, both */
#define KEYS 2
#define REC(t)  ((t) == 0 -> 1 : ((t) == 2 -> 2 : 3))
#define REAL(t) REC(t)
#elif KEYSET == 2 /* the recorded key of task 0 is wrong */
#define KEYS 2
#define REC(t)  ((t) == 1 -> 2 : 1)
#define REAL(t) ((t) < 2 -> 2 : 1)
#elif KEYSET == 3 /* one, the other, one, ... */
#define KEYS 2
#define REC(t)  ((t) % 2 == 0 -> 1 : 2)
#define REAL(t) REC(t)
#endif

#define RUNS  7
#define BIT(n) (1 << (n))
#define ALL    (BIT(TASKS) - 1)
#define NOBODY 255

/* Phases of a run. */
#define NONE       0
#define GRANTED    1  /* Redis has granted it; its worker does not know yet */
#define HELD       2  /* in the worker's memory or, behind another run (base), a standby */
#define REFUSED    3  /* plain path: the handler found its key held */
#define RUNNING    4
#define RETURNED   5  /* the function has returned; the ack is to be sent */
#define RELEASED   6  /* plain path: the lock is released; the ack is to be sent */
#define ABANDONED  7  /* asynq has given the handler up; its function still runs */
#define LEFTOVER   8  /* a function has returned that asynq sends no ack for any more */
#define ACKED      9  /* the ack was executed; its reply is under way */
#define LOST      10  /* granted by a live worker's call, and the worker will never know */
#define DEAD      11  /* its worker was killed */
#define KEPT      12  /* a successor: in memory without a lease, and in no slot */

/* Redis: asynq's sets of tasks, as bit masks, and what the scripts have added. */
byte pend = ALL, act, lse, rty, done, arch;
byte waiters;                 /* tasks with an entry among the waiters of a key; it can be out of date */
byte waitsFor[TASKS];         /* which key */
byte runOf[TASKS];              /* nonce of the run that the task is active in */
byte unleased;                /* active tasks whose asynq lease has expired */
byte lock[KEYS];              /* nonce of the owner, 0 = free */
byte fence;
byte stale;                   /* PARK_UNTIMED: tasks that wait and are nowhere else */
#if RECOVERY
byte silent;                  /* bit w: worker w counts as dead, and lives */
short named;                  /* bit r: the owner value of run r tells its worker, whose leases end once it is silent */
short tells;                  /* bit r: the name of run r tells its worker, which was not silent when it began the run */
short ousted;                 /* bit r: its task was taken back from run r */
#if MUTANT == BACK_UNCHECKED
byte remnants;                /* tasks that were in a run of a dead or silent worker at the last look */
#endif
#define NAME(r, v) named = (silent & BIT(v) -> named & ~BIT(r) : named | BIT(r))
#define BEGAN(r, v) tells = (silent & BIT(v) -> tells & ~BIT(r) : tells | BIT(r))
#define OUSTED(r)  (ousted & BIT(r))
#else
#define NAME(r, v) skip
#define BEGAN(r, v) skip
#define OUSTED(r)  false
#endif

/* Runs. tk, out and by are in the task's hash or in the call; good, leaseless and phase are known to the worker alone. */
byte phase[RUNS + 1];
byte tk[RUNS + 1];
byte wk[RUNS + 1];
byte by[RUNS + 1];            /* what granted it, until its worker knows: a run (its ack), FETCH(worker), CARRIED(run), GIVENUP(run) */
byte base[RUNS + 1];          /* the run whose lock it relies on: itself, or the one it stands by for; 0 on the plain path before acquire */
byte token[RUNS + 1];         /* its fencing token */
byte out[RUNS + 1];           /* 0 success, 1 retry, 2 archive */
short good;                   /* bit r: the lease of run r is valid by its worker's clock */
short leaseless;              /* bit r: asynq's lease of run r has expired */
short plain;                  /* bit r: run r takes its lock in the handler */
#define FETCH(w)   (RUNS + 1 + (w))
#define CARRIED(r) (RUNS + WORKERS + (r))     /* the fetch in the call of the ack of run r that its worker waits for */
#define GIVENUP(r) (2 * RUNS + WORKERS + (r)) /* the fetch in a call that it has given up */

/* Workers and calls. */
byte fetching;                /* bit w: the reply to a fetch of worker w is under way */
byte stopped;                 /* bit w: shutdown has begun */
byte gone;                    /* bit w: the process has ended */
short lateAck;                /* bit r: a call with the ack of run r may arrive yet whose caller has given it up, or was killed */
short unmarked;               /* bit r: the fetch in that call would take tasks, because it was not recalled */
short repeats;                /* bit r: the ack of run r is to be repeated */
short recalls;                /* bit r: the fetch in a call with the ack of run r is to be recalled */
byte lateFetch;               /* bit w: a fetch of worker w may arrive yet that was recalled */
byte orphanFetch;             /* bit w: a fetch of a worker that was killed since may arrive yet */
bit corrected;                /* the recorded key of task 0 was put right */

/* What the assertions and reductions need; the protocol does not see it. */
byte left = BUDGET;
byte ran;                     /* tasks whose function has returned */
byte top[KEYS];               /* the largest token that has begun */
short taken;                  /* bit r: while the function of run r was at work, another owner has got a key of it: the counter tells */
byte excused;                 /* bit k: a lock of key k has expired, or a task on its way to it was killed: timers are for that */
byte touched;                 /* tasks that have been looked at: the others are alike */
#if MUTANT == SYNCER_BY_ID
byte again;                   /* tasks whose ack asynq will repeat */
#endif
#if MUTANT == HEIR_GONE
short standbyGone;
#endif

/* Scratch, 0 between steps. */
byte me, t, u, w, n, i, k, heir, spare;
#if FOUND
byte each;
#endif
#if SUCCESSOR
byte saved;
#endif
#if LATER
bit repeated;
#endif
bit fused, mine, found, usedUp, bare;

/* EXPECT(kind, v, x) stands in each step that a recorded run shows: it goes on only if the next event of that is of this kind, of worker v and of
 * task x. NOTE(what) notes what a comparison with the run needs. Both are nothing unless a run is to be explained. */
#ifdef TRACED
#include "trace.pml"
#else
#define BEGIN_TRACE
#define EXPECT(kind, v, x)
#define NOTE(what)
#define COMPARE
#endif

#define EVENT(e) (left > 0 && (EVENTS & (e)))
#define spend    left = left - 1

#if KEYSET == 2
#define NOTED(x) ((x) == 1 || (x) == 0 && corrected -> 2 : 1)
#else
#define NOTED(x) REC(x)
#endif

#if MUTANT == OWNER_REUSED
#define OWNS(r, j) (lock[j] != 0 && (r) != 0 && wk[lock[j]] == wk[r] && tk[lock[j]] == tk[r])
#else
#define OWNS(r, j) (lock[j] == (r))
#endif
#if KEYS == 1
#define FREE(m)      (lock[0] == 0)
#define OWNSANY(r)   (lock[0] == (r))
#define HAS(r, m)    (lock[0] == (r))
#define HELDKEY(m)   0
#define OTHERHELD(m, j) false
#else
#define FREE(m)      ((!((m) & 1) || lock[0] == 0) && (!((m) & 2) || lock[1] == 0))
#define OWNSANY(r)   (lock[0] == (r) || lock[1] == (r))
#define HAS(r, m)    ((!((m) & 1) || lock[0] == (r)) && (!((m) & 2) || lock[1] == (r)))
#define HELDKEY(m)   (((m) & 1) && lock[0] != 0 -> 0 : (((m) & 2) && lock[1] != 0 -> 1 : (((m) & 1) -> 0 : 1)))
#define OTHERHELD(m, j) (((m) & BIT(1 - (j))) && lock[1 - (j)] != 0)
#endif

#if ORDER
#define HEAD(x) (((done | arch) & (BIT(x) - 1)) == BIT(x) - 1)
#else
#define HEAD(x) true
#endif
#if MUTANT == ADMIT_ANY
#define ADMITS(x) FREE(NOTED(x))
#elif MUTANT == ADMIT_BEHIND
#define ADMITS(x) (FREE(NOTED(x)) && (((done | arch | rty) & (BIT(x) - 1)) == BIT(x) - 1))
#elif MUTANT == ADMIT_BLIND
#define ADMITS(x) true
#else
#define ADMITS(x) (FREE(NOTED(x)) && HEAD(x))
#endif
#define RUNNABLE(x) (FREE(NOTED(x)) && HEAD(x))

#define ACTIVE(r) ((act & BIT(tk[r])) && runOf[tk[r]] == (r))

/* The owner value of the lease of run r is base[r]: its own nonce, or that of the run which has locked the key, for a successor. The lease of
 * a run that has handed it off is 0; so the call of its ack has no owner value, whenever it arrives. */
#if SUCCESSOR
#define HASLOCK(r) (base[r] != 0 && OWNSANY(base[r]))
#else
#define HASLOCK(r) OWNSANY(r)
#endif

#define OCCUPIES(r, v) (wk[r] == (v) && phase[r] >= GRANTED && phase[r] <= RELEASED)
#define BUSY(v) (OCCUPIES(1, v) + OCCUPIES(2, v) + OCCUPIES(3, v) + OCCUPIES(4, v) + OCCUPIES(5, v) + OCCUPIES(6, v) + OCCUPIES(7, v))
#define ROOM(v) (BUSY(v) < SLOTS)
#if SUCCESSOR
#define KEPT_OF(r, v) (wk[r] == (v) && phase[r] == KEPT)
#define KEPTS(v) (KEPT_OF(1, v) + KEPT_OF(2, v) + KEPT_OF(3, v) + KEPT_OF(4, v) + KEPT_OF(5, v) + KEPT_OF(6, v) + KEPT_OF(7, v))
#else
#define KEPTS(v) 0
#endif

/* The function of the run is at work. */
#define AT_WORK(r) (phase[r] == RUNNING || phase[r] == ABANDONED)

/* One of the tasks for which F holds goes to u, NOBODY when there is none. Tasks that nobody has looked at yet are alike where they have the same key:
 * the lowest of them goes first. */
#if KEYSET == 0 && !ORDER && !defined(TRACED)
#define FIRST(x) ((touched & BIT(x)) || ((BIT(x) - 1) & ~touched) == 0)
#else
#define FIRST(x) true
#endif
#if TASKS == 2
#define PICK(F) if :: F(0) -> u = 0 :: F(1) -> u = 1 :: else -> u = NOBODY fi
#define ANY(F) (F(0) || F(1))
#elif TASKS == 3
#define PICK(F) if :: F(0) -> u = 0 :: F(1) -> u = 1 :: F(2) -> u = 2 :: else -> u = NOBODY fi
#define ANY(F) (F(0) || F(1) || F(2))
#else
#define PICK(F) if :: F(0) -> u = 0 :: F(1) -> u = 1 :: F(2) -> u = 2 :: F(3) -> u = 3 :: else -> u = NOBODY fi
#define ANY(F) (F(0) || F(1) || F(2) || F(3))
#endif
#define RUNOF(F) F(1) -> me = 1 :: F(2) -> me = 2 :: F(3) -> me = 3 :: F(4) -> me = 4 :: F(5) -> me = 5 :: F(6) -> me = 6 :: F(7) -> me = 7
#if WORKERS == 1
#define WORKER(F) F(0) -> w = 0
#elif WORKERS == 2
#define WORKER(F) F(0) -> w = 0 :: F(1) -> w = 1
#else
#define WORKER(F) F(0) -> w = 0 :: F(1) -> w = 1 :: F(2) -> w = 2
#endif
#if TASKS == 2
#define TASK(F) F(0) -> t = 0 :: F(1) -> t = 1
#elif TASKS == 3
#define TASK(F) F(0) -> t = 0 :: F(1) -> t = 1 :: F(2) -> t = 2
#else
#define TASK(F) F(0) -> t = 0 :: F(1) -> t = 1 :: F(2) -> t = 2 :: F(3) -> t = 3
#endif

/* Run v becomes the owner of key j. A running function of another one on this key has lost it, whatever its worker believes. */
#define TAKEN_FROM(r, j, v) ((r) != (v) && phase[r] == RUNNING && (NOTED(tk[r]) & BIT(j)) -> BIT(r) : 0)
inline own(j, v) {
  lock[j] = v;
  NOTE(owned(j, v))
  taken = taken | TAKEN_FROM(1, j, v) | TAKEN_FROM(2, j, v) | TAKEN_FROM(3, j, v) | TAKEN_FROM(4, j, v) | TAKEN_FROM(5, j, v) |
          TAKEN_FROM(6, j, v) | TAKEN_FROM(7, j, v)
}

#if REACH
inline reach(what) { assert(REACH != what) }                                     /* SEEN */
#else
inline reach(what) { skip }
#endif

/* ---- Parts of the scripts --------------------------------------------------------------------------------------------------- */

/* The task x becomes active in a new run of worker v, granted by a call. standby: 0, or the run whose lock it is to inherit. */
inline grant(x, v, call, standby) {
  d_step {
    n = 1;
    do
    :: n > RUNS -> break
    :: else ->
       usedUp = phase[n] != NONE || ((lateAck | recalls) & BIT(n)) || OWNSANY(n);
       i = 0;
       do :: i < TASKS -> usedUp = usedUp || runOf[i] == n; i++ :: else -> break od;
       i = 1;
       do :: i <= RUNS -> usedUp = usedUp || (i != n && (base[i] == n || by[i] == n)); i++ :: else -> break od;
       if :: usedUp -> n++ :: else -> break fi
    od;
    usedUp = 0;
    i = 0;
    assert(n <= RUNS);                                                           /* LIMIT */
    act = act | BIT(x);
    lse = lse | BIT(x);
    waiters = waiters & ~BIT(x);
    runOf[x] = n;
    phase[n] = GRANTED;
    tk[n] = x;
    wk[n] = v;
    by[n] = call;
    touched = touched | BIT(x);
    NOTE(ran_once_more(n, x))
    BEGAN(n, v);
    if
    :: LEVEL == 2 || bare -> plain = plain | BIT(n)
    :: else ->
       if
       :: MUTANT == PASS_UNFENCED && call <= RUNS && standby == 0
       :: MUTANT == STANDBY_UNFENCED && standby != 0
       :: else -> fence = fence + BLOCK
       fi;
       assert(fence < 30 * BLOCK);                                               /* ENDLESS */
       token[n] = fence + 1 - BLOCK;
       good = good | BIT(n);
       NAME(n, v);
       if
       :: standby != 0 -> base[n] = standby
       :: else ->
          base[n] = n;
          if
          :: MUTANT == PASS_PARTIAL && call <= RUNS -> own(k, n)
          :: else ->
             if :: NOTED(x) & 1 -> own(0, n) :: else fi;
#if KEYS > 1
             if :: NOTED(x) & 2 -> own(1, n) :: else fi;
#endif
             skip
          fi;
          excused = excused & ~NOTED(x)
       fi
    fi
  }
}

/* Waiters of key j that need another key which is held wait for that one from now on. */
inline reregister(j) {
#if KEYS > 1
  i = 0;
  do
  :: i < TASKS ->
     if
     :: (waiters & BIT(i)) && waitsFor[i] == j && OTHERHELD(NOTED(i), j) -> waitsFor[i] = 1 - (j)
     :: else
     fi;
     i++
  :: else -> break
  od;
  i = 0;
#endif
  skip
}

#if MUTANT == PASS_BLIND
#define CANWAKE(x) ((waiters & BIT(x)) && waitsFor[x] == k && RUNNABLE(x))
#elif MUTANT == PASS_ANY
#define CANWAKE(x) ((waiters & BIT(x)) && waitsFor[x] == k && FREE(NOTED(x)) && (HEAD(x) || fused) && ((rty | pend) & BIT(x)))
#elif MUTANT == PASS_PARTIAL
#define CANWAKE(x) ((waiters & BIT(x)) && waitsFor[x] == k && HEAD(x) && ((rty | pend) & BIT(x)))
#else
#define CANWAKE(x) ((waiters & BIT(x)) && waitsFor[x] == k && RUNNABLE(x) && ((rty | pend | stale) & BIT(x)))
#endif

/* Key k is free: it is passed to its next waiter in the same script, when that is allowed, or the waiter is made pending. Waiters that are active or
 * ended are left over and skipped. */
inline passOn(call) {
#if MUTANT != PASS_PARTIAL
  reregister(k);
#endif
  PICK(CANWAKE);
  if
  :: u == NOBODY
  :: u != NOBODY && fused && ROOM(w) ->
#if MUTANT == PASS_BLIND
     rty = rty & ~BIT(u);
#else
     rty = rty & ~BIT(u);
     pend = pend & ~BIT(u);
     stale = stale & ~BIT(u);
#endif
     grant(u, w, call, 0);
     heir = n
  :: u != NOBODY && !(fused && ROOM(w)) && ((rty | stale) & BIT(u)) ->
     if
     :: MUTANT == RELEASE_SILENT
     :: else ->
        rty = rty & ~BIT(u);
        stale = stale & ~BIT(u);
        pend = pend | BIT(u)
#if LATER
     :: repeated -> excused = excused | BIT(k)
#endif
     fi
  :: else
  fi
}

/* A woken task that did not take its keys: those of them that are free go to other tasks. */
inline forwardWake(m) {
#if MUTANT != PARK_SWALLOWS
  fused = 0;
  k = 0;
  do
  :: k < KEYS ->
     spare = u;
     if
     :: ((m) & BIT(k)) && lock[k] == 0 -> passOn(0)
     :: else
     fi;
     u = spare;
     k++
  :: else -> break
  od;
  spare = 0;
  k = 0;
#endif
  skip
}

/* Task x, just taken from where it was, waits for a key: in the retry set of asynq, whose timer brings it back whatever happens. */
inline await(x) {
  d_step {
    if
    :: MUTANT == PARK_UNTIMED -> stale = stale | BIT(x)
    :: else -> rty = rty | BIT(x)
    fi;
    waiters = waiters | BIT(x);
    waitsFor[x] = HELDKEY(NOTED(x));
    touched = touched | BIT(x)
  }
}

#define PENDING(x) ((pend & BIT(x)) && FIRST(x))

#if FOUND
/* A task in memory whose keys were found waits for its locks. */
#define WAITING(r, v)  (wk[r] == (v) && phase[r] == HELD && (plain & BIT(r)) && ACTIVE(r))
#define FINDS(v)       (WAITING(1, v) || WAITING(2, v) || WAITING(3, v) || WAITING(4, v) || WAITING(5, v) || WAITING(6, v) || WAITING(7, v))

/* The locks of tasks that worker w has fetched before: each takes all of its keys, or waits for one of them in place. Its worker does not know
 * which until the call is answered. */
inline admitFound(call) {
  each = 1;
  do
  :: each <= RUNS ->
     if
     :: WAITING(each, w) ->
        u = tk[each];
        phase[each] = GRANTED;
        by[each] = call;
        found = 1;
        if
        :: RUNNABLE(u) ->
           d_step {
             k = 0;
             do
             :: k < KEYS ->
                if
                :: NOTED(u) & BIT(k) -> own(k, each)
                :: else
                fi;
                k++
             :: else -> break
             od;
             k = 0;
             excused = excused & ~NOTED(u);
             fence = fence + BLOCK;
             token[each] = fence + 1 - BLOCK;
             base[each] = each;
             good = good | BIT(each);
             NAME(each, w);
             plain = plain & ~BIT(each)
           }
        :: else ->
           act = act & ~BIT(u);
           lse = lse & ~BIT(u);
           runOf[u] = 0;
           await(u);
           n = fused;
           forwardWake(NOTED(u));
           fused = n
        fi
     :: else
     fi;
     each++
  :: else -> break
  od;
  each = 0
}
#else
#define FINDS(v)       false
inline admitFound(call) { skip }
#endif

/* Takes pending tasks for the free slots of worker w; those that cannot have their key wait for it in place. */
inline admit(call) {
  do
  :: ROOM(w) && pend != 0 ->
     PICK(PENDING);
     pend = pend & ~BIT(u);
     if
     :: ADMITS(u) -> grant(u, w, call, 0); found = 1
     :: !ADMITS(u) && MUTANT != PARK_LATER ->
        await(u);
        n = fused;
        forwardWake(NOTED(u));
        fused = n
     :: (PLAIN || !ADMITS(u)) && (LEAVE || SUCCESSOR) ->
        bare = 1;
        grant(u, w, call, 0);
        found = 1;
        bare = 0;
        if
        :: MUTANT == PARK_LATER -> phase[n] = REFUSED
        :: else
        fi
     fi
#if FEWER
  :: found -> break
#endif
  :: else -> break
  od;
  admitFound(call)
}

/* The task's part of the end of a run: only when the task is active in this very run. */
#if MUTANT == ACK_BY_ID
#define ITS(r) (act & BIT(tk[r]))
#else
#define ITS(r) ACTIVE(r)
#endif
inline leaveActive(r) {
  d_step {
    mine = 0;
    if
    :: ITS(r) ->
       mine = 1;
       act = act & ~BIT(tk[r]);
       lse = lse & ~BIT(tk[r]);
       unleased = unleased & ~BIT(tk[r]);
       runOf[tk[r]] = 0
    :: else
    fi
  }
}

#define BEGUN(r)     (phase[r] == RUNNING || phase[r] == RETURNED || phase[r] == ABANDONED || phase[r] == LEFTOVER || phase[r] == ACKED)
#define STANDS_BY(r) (phase[r] != NONE && base[r] == me && r != me && (ACTIVE(r) || (BEGUN(r) && MUTANT != HEIR_ACTIVE)))

/* The lock's part: what run me still owns goes to its standby, to the next waiter (in the same script when fused), or is free. */
inline leaveLock(call) {
  heir = 0;
#if MUTANT != HEIR_OVERRUN && !SUCCESSOR
  if
  :: STANDS_BY(1) -> heir = 1 :: STANDS_BY(2) -> heir = 2 :: STANDS_BY(3) -> heir = 3 :: STANDS_BY(4) -> heir = 4
  :: STANDS_BY(5) -> heir = 5 :: STANDS_BY(6) -> heir = 6 :: STANDS_BY(7) -> heir = 7
  :: else
  fi;
#endif
#if ORDER && MUTANT != STANDBY_STUCK
  /* In order: a task that is to be retried keeps its position, so its standby goes back. */
  if
  :: heir != 0 && !HEAD(tk[heir]) -> good = good & ~BIT(heir); base[heir] = heir; heir = 0
  :: else
  fi;
#endif
#if MUTANT == PASS_UNGUARDED
#define LEAVES(j) (NOTED(tk[me]) & BIT(j))
#elif SUCCESSOR && MUTANT == OWN_VALUE
#define LEAVES(j) ((NOTED(tk[me]) & BIT(j)) && OWNS(me, j))
#elif SUCCESSOR
#define LEAVES(j) ((NOTED(tk[me]) & BIT(j)) && base[me] != 0 && OWNS(base[me], j))
#elif MUTANT == RELEASE_UNGUARDED
#define LEAVES(j) (lock[j] != 0 && (fused && OWNS(me, j) || !fused && (NOTED(tk[me]) & BIT(j))))
#else
#define LEAVES(j) (OWNS(me, j) || (base[me] != 0 && lock[j] == base[me] && BEGUN(me) && MUTANT != HEIR_ACTIVE))
#endif
#if MUTANT == HEIR_GONE
  if
  :: standbyGone & BIT(me)
  :: else ->
#endif
  spare = 0;
  k = 0;
  do
  :: k < KEYS ->
     if
     :: LEAVES(k) ->
        if
        :: heir != 0 -> own(k, heir); excused = excused & ~BIT(k)
        :: else -> lock[k] = 0; spare = spare | BIT(k)
        fi
     :: else
     fi;
     k++
  :: else -> break
  od;
  if
  :: heir != 0 -> base[heir] = heir
  :: else
  fi;
  k = 0;
  do
  :: k < KEYS ->
     if
     :: (spare & BIT(k)) && lock[k] == 0 -> passOn(call)
     :: else
     fi;
     k++
  :: else -> break
  od;
#if MUTANT == HEIR_GONE
  fi;
#endif
  k = 0;
  spare = 0
}

/* A waiter that could stand by behind run heir: it has the same keys. */
#if ORDER
#define NEXT_AFTER(x, y) (((done | arch | BIT(y)) & (BIT(x) - 1)) == BIT(x) - 1)
#else
#define NEXT_AFTER(x, y) true
#endif
#define CANSTANDBY(x) ((waiters & BIT(x)) && ((rty | pend) & BIT(x)) && NOTED(x) == NOTED(tk[heir]) && NEXT_AFTER(x, tk[heir]))

#define GRANTED_BY(r, call) (phase[r] == GRANTED && by[r] == (call))
#define GRANTS(c) (GRANTED_BY(1, c) || GRANTED_BY(2, c) || GRANTED_BY(3, c) || GRANTED_BY(4, c) || GRANTED_BY(5, c) || GRANTED_BY(6, c) || \
                   GRANTED_BY(7, c))

#if SUCCESSOR
#define BEHIND(x) ((waiters & BIT(x)) && waitsFor[x] == k && (rty & BIT(x)))
/* For each key of run me, a task that waits for it is woken although the key is held. */
inline wakeBehind() {
  k = 0;
  do
  :: k < KEYS ->
     if
     :: NOTED(tk[me]) & BIT(k) ->
        PICK(BEHIND);
        if
        :: u == NOBODY
        :: else -> rty = rty & ~BIT(u); pend = pend | BIT(u); reach(14)
        fi
     :: else
     fi;
     k++
  :: else -> break
  od;
  k = 0
}
#endif

/* A call with the ack of run me, and with a fetch. The ack ends the run, passes the key on and may bring along the next standby; a repeated
 * one answers what the first one did. If it brings none, the fetch takes tasks, whatever the ack has found: unless there is no fetch in the
 * call, or its name is marked. */
inline ack(call, fetches) {
  w = wk[me];
  if
  :: GRANTS(me) && MUTANT != ACK_FORGETS
  :: else ->
     leaveActive(me);
     if
#if MUTANT == ACK_STRICT
     :: mine && base[me] == 0 && !FREE(NOTED(tk[me])) -> rty = rty | BIT(tk[me])
#endif
     :: mine && out[me] == 0 ->
        assert(ran & BIT(tk[me]));                                               /* UNRUN */
        done = done | BIT(tk[me])
     :: mine && out[me] == 1 -> rty = rty | BIT(tk[me])
     :: mine && out[me] == 2 -> arch = arch | BIT(tk[me])
     :: else
     fi;
#if SUCCESSOR
     if
     :: !mine && base[me] == 0 && phase[me] == ACKED && (leaseless & BIT(me)) -> reach(13)
     :: else
     fi;
#endif
     fused = mine && !(stopped & BIT(w)) && PASS;
#if MUTANT == STOP_PASSES
     fused = mine;
#endif
     if
     :: MUTANT == RETRY_KEEPS && out[me] != 0
     :: else -> leaveLock(me)
     fi;
#if SUCCESSOR
     assert(!mine || out[me] != 0 || (done & BIT(tk[me])));                       /* COUNTS */
     /* The lease was handed off. Nothing is released, and a task is woken for each key: it may be the next successor. A repetition that
      * ends the run, because the first call has never arrived, wakes none. */
     if
     :: mine && (base[me] == 0 || FOLLOW) -> wakeBehind()
     :: true
     fi;
#endif
     if
     :: fused && heir != 0 && (HAS(heir, NOTED(tk[heir])) || MUTANT == STANDBY_UNLOCKED) && ROOM(w) && ANY(CANSTANDBY) ->
        PICK(CANSTANDBY);
        rty = rty & ~BIT(u);
        pend = pend & ~BIT(u);
        grant(u, w, me, heir);
        found = 1
     :: true
     fi;
#if ORDER
     if
     :: mine && (plain & BIT(me)) -> u = tk[me]; forwardWake(NOTED(u))
     :: else
     fi;
#endif
     skip
  fi;
  if
  :: !found && ((fetches) || (MUTANT == MARK_IGNORED && mine)) -> admit(call)
  :: true
  fi
}

/* ---- Ends ------------------------------------------------------------------------------------------------------------------- */

/* Nothing refers to the task and the worker of run r any more. */
inline forget(r) {
  if
  :: phase[r] == NONE && !((lateAck | recalls) & BIT(r)) -> tk[r] = 0; wk[r] = 0; out[r] = 0; base[r] = 0
  :: else
  fi
}

/* Run r is over for its worker. Its standby has inherited the lock, or has lost it. */
inline over(r) {
  d_step {
    i = 1;
    do
    :: i <= RUNS ->
       if
       :: !SUCCESSOR && i != (r) && base[i] == (r) ->
          base[i] = i;
          assert(!(good & BIT(i)) || MUTANT == HEIR_OVERRUN || MUTANT == HEIR_ACTIVE) /* INHERITED */
       :: else
       fi;
       i++
    :: else -> break
    od;
    i = 0;
    /* A standby that has begun ends the lock of the run before it, so that an ack of that run which still names it finds nothing. */
    assert(MUTANT != 0 || !BEGUN(r) || base[r] == 0 || !SUCCESSOR && base[r] == r || !OWNSANY(base[r])); /* ENDED */
    phase[r] = NONE;
    taken = taken & ~BIT(r);
    by[r] = 0;
    base[r] = (SUCCESSOR && (lateAck & BIT(r)) -> base[r] : 0); /* a call that is under way has it */
    token[r] = 0;
    good = good & ~BIT(r);
    leaseless = leaseless & ~BIT(r);
    plain = plain & ~BIT(r);
#if RECOVERY
    ousted = ousted & ~BIT(r);
    tells = tells & ~BIT(r);
    if
    :: OWNSANY(r)
    :: else -> named = named & ~BIT(r)
    fi;
#endif
#if MUTANT == HEIR_GONE
    standbyGone = standbyGone & ~BIT(r);
#endif
    repeats = repeats & ~BIT(r);
    forget(r)
  }
}

#define BURIED(r) (phase[r] == DEAD && !ACTIVE(r) && !HASLOCK(r) && !(lateAck & BIT(r)))

/* The worker reads the reply of a call; or nobody does, because it was killed. */
inline learn(call, p) {
  d_step {
    i = 1;
    do
    :: i <= RUNS ->
       if
       :: GRANTED_BY(i, call) ->
          phase[i] = (FOUND && !ACTIVE(i) -> DEAD : p); /* it was parked: the run is over */
          by[i] = 0;
          if
          :: p == DEAD && (plain & BIT(i)) -> excused = excused | NOTED(tk[i])
          :: else
          fi;
#if MUTANT == FROM_REPLY
          good = good | BIT(i);
#endif
       :: else
       fi;
       i++
    :: else -> break
    od;
    i = 0
  }
}

/* The worker reads the reply to a call with the ack of run me. */
inline hear() {
  learn(me, HELD);
  learn(CARRIED(me), HELD);
#if MUTANT == REPEAT_ANSWERS
  learn(GIVENUP(me), LOST);
  recalls = recalls & ~BIT(me);
#endif
  over(me)
}

/* The worker gives up a call with the ack of run me: what its fetch has taken is found by a recall. */
inline giveUp() {
  d_step {
    repeats = repeats | BIT(me);
    i = 1;
    do
    :: i <= RUNS ->
       if
       :: GRANTED_BY(i, CARRIED(me)) ->
          by[i] = GIVENUP(me);
          recalls = recalls | BIT(me)
       :: else
       fi;
       i++
    :: else -> break
    od;
    i = 0
  }
}

/* A lock expires: no run that relies on it has a valid lease any more, because validity counts from before the call was sent. */
inline expire(j) {
  d_step {
    i = 1;
    do
    :: i <= RUNS ->
       if
       :: phase[i] != NONE && base[i] == lock[j] -> good = good & ~BIT(i)
       :: else
       fi;
       i++
    :: else -> break
    od;
    i = 0;
    lock[j] = 0;
    excused = excused | BIT(j)
  }
}

/* Run me takes its keys, which are free. */
inline take() {
  d_step {
    k = 0;
    do
    :: k < KEYS ->
       if
       :: NOTED(tk[me]) & BIT(k) -> own(k, me)
       :: else
       fi;
       k++
    :: else -> break
    od;
    excused = excused & ~NOTED(tk[me]);
    fence = fence + BLOCK;
    token[me] = fence + 1 - BLOCK;
    base[me] = me;
    good = good | BIT(me);
    NAME(me, wk[me])
  }
}

inline begin() {
  d_step {
    assert(!SUCCESSOR || ACTIVE(me) || OUSTED(me) || MUTANT != 0 && MUTANT != KEEP_UNLEASED); /* ONE_RUN */
    phase[me] = RUNNING;
    k = 0;
    do
    :: k < KEYS ->
       if
       :: REAL(tk[me]) & BIT(k) ->
          assert(token[me] > top[k]);                                            /* FENCE */
          top[k] = token[me]
       :: else
       fi;
       k++
    :: else -> break
    od;
    k = 0;
    assert(HEAD(tk[me]))                                                         /* IN_ORDER */
  }
}

/* ---- What may come next ----------------------------------------------------------------------------------------------------- */

#define MAY_FETCH(v)   (!(fetching & BIT(v)) && !((stopped | gone) & BIT(v)) && (pend != 0 && ROOM(v) || FINDS(v)))
#define MAY_READ(v)    (fetching & BIT(v))
#define MAY_REFETCH(v) ((fetching & BIT(v)) && EVENT(LOSS))
#define MISTAKEN(r)    (NOTED(tk[r]) != REAL(tk[r]))
#define FREED(p)       (phase[p] == RETURNED || phase[p] == ACKED || (MUTANT == STANDBY_EARLY && phase[p] == ABANDONED))
#if ORDER && MUTANT != STANDBY_AHEAD
#define UNANSWERED(q, r) ((phase[q] == ACKED || phase[q] == RETURNED) && wk[q] == wk[r] && q != r)
#define INHERITS(r)    (base[r] == r && !(UNANSWERED(1, r) || UNANSWERED(2, r) || UNANSWERED(3, r) || UNANSWERED(4, r) || UNANSWERED(5, r) || \
                        UNANSWERED(6, r) || UNANSWERED(7, r)))
#else
#define INHERITS(r)    (base[r] == r || FREED(base[r]))
#endif
#if SUCCESSOR
#undef INHERITS
#define INHERITS(r)    (!(leaseless & BIT(r)) || MUTANT == KEEP_UNLEASED)
#endif
#define VALID(r)       ((good & BIT(r)) || MUTANT == START_UNCHECKED)
#define STOPPING(r)    (stopped & BIT(wk[r]))
#define TRUSTED(r)     (!MISTAKEN(r) || MUTANT == KEYS_TRUSTED)
#define MAY_START(r)   (phase[r] == HELD && !(plain & BIT(r)) && VALID(r) && INHERITS(r) && !STOPPING(r) && TRUSTED(r))
#define OUTDATED(r)    (SUCCESSOR && (leaseless & BIT(r)) && MUTANT != KEEP_UNLEASED)
#define MAY_CORRECT(r) (phase[r] == HELD && !(plain & BIT(r)) && MISTAKEN(r) && (base[r] == r || SUCCESSOR) && !OUTDATED(r) && \
                        !STOPPING(r) && MUTANT != KEYS_TRUSTED)
#define MAY_ACQUIRE(r) (phase[r] == HELD && (plain & BIT(r)) && !STOPPING(r) && !OUTDATED(r) && (!FOUND || MUTANT == PARKED_AGAIN && !ACTIVE(r)))
#define MAY_PARK(r)    (phase[r] == REFUSED)
#if SUCCESSOR
/* Run r could hand its lease off to run s; and its worker has that lease. */
#define SUITS(s, r)    ((s) != (r) && wk[s] == wk[r] && \
                        (NOTED(tk[s]) == NOTED(tk[r]) || MUTANT == KEEP_PARTLY && (NOTED(tk[s]) & NOTED(tk[r]))))
#define LEASES(r, s)   ((phase[r] == HELD || phase[r] == RUNNING) && base[r] != 0 && (good & BIT(r)) && SUITS(s, r))
#define IS_LEASED(s)   (LEASES(1, s) || LEASES(2, s) || LEASES(3, s) || LEASES(4, s) || LEASES(5, s) || LEASES(6, s) || LEASES(7, s))
#define RIVALS(r, s)   (phase[r] == KEPT && wk[r] == wk[s] && (NOTED(tk[r]) & NOTED(tk[s])))
#define RIVALS_OF(s)   (RIVALS(1, s) + RIVALS(2, s) + RIVALS(3, s) + RIVALS(4, s) + RIVALS(5, s) + RIVALS(6, s) + RIVALS(7, s))
#define MAY_KEEP(r)    (!STOPPING(r) && RIVALS_OF(r) < SUCCESSOR && IS_LEASED(r))
#define SUCCEEDS(s, r) (phase[s] == KEPT && SUITS(s, r))
#define SUCCEEDED(r)   (SUCCEEDS(1, r) || SUCCEEDS(2, r) || SUCCEEDS(3, r) || SUCCEEDS(4, r) || SUCCEEDS(5, r) || SUCCEEDS(6, r) || SUCCEEDS(7, r))
#define OVER_YET(r)    (phase[r] == RETURNED || phase[r] == LEFTOVER || MUTANT == HAND_EARLY && AT_WORK(r))
#define MAY_HAND(r)    (OVER_YET(r) && base[r] != 0 && ((good & BIT(r)) || MUTANT == HAND_UNCHECKED) && \
                        (!((lateAck | repeats) & BIT(r)) || MUTANT == HAND_SENT) && \
                        (token[r] % BLOCK != 0 || MUTANT == HAND_OVERRUN || MUTANT == HAND_UNFENCED) && SUCCEEDED(r))
#define MAY_ASK(r)     (phase[r] == KEPT && RUNNABLE(tk[r]) && !STOPPING(r) && !(leaseless & BIT(r)))
#define MAY_UNKEEP(r)  (phase[r] == KEPT && MUTANT != KEEP_ENDLESS && !(MUTANT == KEEP_STRANDS && STOPPING(r)))
#define MAY_UNKEPT(r)  (MAY_UNKEEP(r) && STOPPING(r))
#endif
#define BLIND          (MUTANT == PARK_BLIND || MUTANT == PARK_LATER)
#define BACK(r)        (phase[r] == HELD && !(STOPPING(r) && MUTANT == STOP_STRANDS))
#define MUST_BACK(r)   (BACK(r) && (STOPPING(r) || OUTDATED(r) || (!(plain & BIT(r)) && !VALID(r))))
#define MAY_BACK(r)    (BACK(r) && !STOPPING(r) && (FOUND || !(plain & BIT(r)) && VALID(r)) && EVENT(GIVEBACK))
#define MAY_FREE_FIRST(r) ((MUST_BACK(r) || MAY_BACK(r)) && base[r] != r && HASLOCK(r))
#define MAY_RETURN(r)  AT_WORK(r)
#define UNSENT(r)      (phase[r] == RELEASED || (phase[r] == RETURNED && !(plain & BIT(r))))
#define MAY_ACK(r)     (UNSENT(r) || (repeats & BIT(r)))
#define MAY_RELEASE(r) (phase[r] == RETURNED && (plain & BIT(r)))
#define MAY_HEAR(r)    (phase[r] == ACKED && !(repeats & BIT(r)))
#define MAY_LOSE(r)    (MAY_HEAR(r) && EVENT(LOSS))
#define MAY_DELAY(r)   (UNSENT(r) && !(lateAck & BIT(r)) && EVENT(LATE))
#define MAY_RECALL(r)  (recalls & BIT(r))
#define MAY_CLEAR(r)   (phase[r] == LEFTOVER)
#define MAY_LATE(r)    (lateAck & BIT(r))
#define MAY_LATEFETCH(v) (lateFetch & BIT(v))
#define MAY_DEADFETCH(v) (orphanFetch & BIT(v))
#define MAY_TIMEOUT(r) (phase[r] == RUNNING && !(leaseless & BIT(r)) && EVENT(TIMEOUT))
#define UNLEASES(r)    (phase[r] == RUNNING || SUCCESSOR && (phase[r] == KEPT || phase[r] == HELD || phase[r] == RETURNED))
#define MAY_UNLEASE(r) (UNLEASES(r) && !(leaseless & BIT(r)) && (!SUCCESSOR && !RECOVERY || ACTIVE(r)) && EVENT(LEASELESS))
#define MAY_DOUBT(r)   ((phase[r] >= GRANTED && phase[r] <= RUNNING) && (good & BIT(r)) && EVENT(DOUBT))
#define MAY_RECOVER(x) ((act & BIT(x)) && (phase[runOf[x]] == DEAD || (unleased & BIT(x))))
#if RECOVERY
/* Its worker was killed, or counts as dead, and it may be taken back from it. */
#define ABSENT(r)      ((tells & BIT(r)) && (phase[r] == DEAD || (silent & BIT(wk[r]))))
#define MAY_SILENCE(v) (!((silent | gone) & BIT(v)) && HAS_ANY(v) && EVENT(SILENCE))
#define MAY_HEAR_OF(v) (silent & BIT(v))
#define OWNERS(r)      (base[r] != 0 && OWNSANY(base[r]) && ((named & BIT(base[r])) || MUTANT == FREES_ANY))
#define MAY_FREE(r)    (phase[r] != NONE && ABSENT(r) && OWNERS(r))
#if MUTANT == BACK_UNCHECKED
#define MAY_LOOK(x)    ((act & BIT(x)) && ABSENT(runOf[x]) && !(remnants & BIT(x)))
#define MAY_BACK_TO(x) (remnants & BIT(x))
#else
#define MAY_BACK_TO(x) ((act & BIT(x)) && ABSENT(runOf[x]))
#endif
#endif
#define MAY_FORWARD(x) ((rty & BIT(x)) && (!(waiters & BIT(x)) || RUNNABLE(x)))
#define MAY_HURRY(x)   ((rty & BIT(x)) && (waiters & BIT(x)) && !RUNNABLE(x) && EVENT(TIMER))
#define CALLS(r, v)    (wk[r] == (v) && (recalls & BIT(r)))
#define HAS_ANY(v)     (BUSY(v) > 0 || KEPTS(v) > 0 || \
                        CALLS(1, v) || CALLS(2, v) || CALLS(3, v) || CALLS(4, v) || CALLS(5, v) || CALLS(6, v) || CALLS(7, v))
#define MAY_CRASH(v)   (!(gone & BIT(v)) && HAS_ANY(v) && EVENT(CRASH))
#define LAST           (WORKERS - 1)
#define OF(r, v)       (wk[r] == (v) && phase[r] != NONE && phase[r] != DEAD)
#define UNRECALLED(r)  ((recalls & BIT(r)) && wk[r] == LAST && MUTANT != STOP_PASSES && MUTANT != STOP_HURRIES && MUTANT != STOP_UNRECALLED)
#define HOLDS_UP(r)    (UNRECALLED(r) || OF(r, LAST) && !(MUTANT == STOP_STRANDS && phase[r] == HELD) && \
                        !(MUTANT == STOP_UNRECALLED && phase[r] == GRANTED && by[r] > GIVENUP(0)) && \
                        !(MUTANT == KEEP_STRANDS && phase[r] == KEPT) && \
                        !((MUTANT == STOP_PASSES || MUTANT == STOP_HURRIES) && (phase[r] == ACKED || phase[r] == GRANTED)))
#define BUSY_YET       (HOLDS_UP(1) || HOLDS_UP(2) || HOLDS_UP(3) || HOLDS_UP(4) || HOLDS_UP(5) || HOLDS_UP(6) || HOLDS_UP(7) || \
                        ((fetching & BIT(LAST)) && MUTANT != STOP_PASSES && MUTANT != STOP_HURRIES))
#define MAY_STOP       (WORKERS > 1 && !((stopped | gone) & BIT(LAST)) && EVENT(STOP))
#define MAY_EXIT       ((stopped & BIT(LAST)) && !(gone & BIT(LAST)) && !BUSY_YET)

#define LOCKED(j)      (lock[j] != 0)
#if SUCCESSOR
/* Whose lock it is: the run whose lease has its owner value. */
#define USED(r, j)     (phase[r] != NONE && base[r] == lock[j])
#define DIED(r, j)     (phase[r] == DEAD && base[r] == lock[j])
#define USES(j)        (USED(1, j) || USED(2, j) || USED(3, j) || USED(4, j) || USED(5, j) || USED(6, j) || USED(7, j))
#define DEAD_USES(j)   (DIED(1, j) || DIED(2, j) || DIED(3, j) || DIED(4, j) || DIED(5, j) || DIED(6, j) || DIED(7, j))
#define DEADLOCK_OF(j) (LOCKED(j) && DEAD_USES(j))
#define LIVELOCK_OF(j) (LOCKED(j) && USES(j) && !DEAD_USES(j) && EVENT(PAUSE))
#else
#define DEADLOCK_OF(j) (LOCKED(j) && phase[lock[j]] == DEAD)
#define LIVELOCK_OF(j) (LOCKED(j) && phase[lock[j]] != DEAD && phase[lock[j]] != NONE && EVENT(PAUSE))
#endif
#if KEYS == 1
#define KEY(F) F(0) -> k = 0
#else
#define KEY(F) F(0) -> k = 0 :: F(1) -> k = 1
#endif

#define STRANDED(r)    (OF(r, LAST) && (ACTIVE(r) || HASLOCK(r)))
#if MUTANT == SYNCER_BY_ID
#define MAY_SYNC(r)    (phase[r] == RUNNING && (again & BIT(tk[r])))
#endif

/* The park of a refused task, which looks at the lock once more. */
inline park() {
#if MUTANT == KEEP_PARKS
  mine = (act & BIT(tk[me])) != 0;
  act = act & ~BIT(tk[me]);
  lse = lse & ~BIT(tk[me]);
  unleased = unleased & ~BIT(tk[me]);
  runOf[tk[me]] = 0;
#else
  leaveActive(me);
#endif
  u = tk[me];
  if
  :: mine && RUNNABLE(u) && !BLIND -> pend = pend | BIT(u)
  :: mine && !(RUNNABLE(u) && !BLIND) ->
     await(u);
     if
     :: BLIND
     :: else -> forwardWake(NOTED(u))
     fi
  :: else
  fi
}

#if SUCCESSOR
/* Run me is parked. The reply may be lost: the park is repeated then. */
inline refuse() {
  park();
  if
  :: over(me)
  :: EVENT(LOSS) -> spend; phase[me] = REFUSED
  fi
}

/* What is to become of the tasks in a reply that were refused: each is kept, if a run of its worker has the lease of its keys, or parked. */
inline decide() {
  saved = me;
  me = 1;
  do
  :: me <= RUNS ->
     if
     :: phase[me] == HELD && (plain & BIT(me)) ->
        if
        :: MAY_KEEP(me) -> phase[me] = KEPT
#ifndef TRACED /* there it is left, and parked in a step of its own */
        :: refuse()
#endif
        :: LEAVE
        fi
     :: else
     fi;
     me++
  :: else -> break
  od;
  me = saved;
  saved = 0
}
#else
inline decide() { skip }
#endif

/* ---- Assertions on each state ------------------------------------------------------------------------------------------------- */

#define BELIEVES(r, j) (AT_WORK(r) && (good & BIT(r)) && (REAL(tk[r]) & BIT(j)))
#define BELIEVERS(j) (BELIEVES(1, j) + BELIEVES(2, j) + BELIEVES(3, j) + BELIEVES(4, j) + BELIEVES(5, j) + BELIEVES(6, j) + BELIEVES(7, j))
#define ALONE(j)       (!(REAL(tk[me]) & BIT(j)) || top[j] == token[me])
#define WORKS(r, j)    (AT_WORK(r) && (REAL(tk[r]) & BIT(j)))
#define ATWORKS(j) (WORKS(1, j) + WORKS(2, j) + WORKS(3, j) + WORKS(4, j) + WORKS(5, j) + WORKS(6, j) + WORKS(7, j))
#define IN(s, x)       (((s) & BIT(x)) != 0)
#define PLACES(x)      (IN(pend, x) + IN(act, x) + IN(rty, x) + IN(done, x) + IN(arch, x) + IN(stale, x))
#define WAITS(x)       (IN(waiters, x) && IN(rty | stale, x) && waitsFor[x] == k && HEAD(x))
#define COMES(x)       (IN(pend, x) && (NOTED(x) & BIT(k)))
#define TRIES(r)       ((plain & BIT(r)) && (phase[r] == GRANTED || phase[r] == HELD || phase[r] == REFUSED) && (NOTED(tk[r]) & BIT(k)))
#define TRIED          (TRIES(1) || TRIES(2) || TRIES(3) || TRIES(4) || TRIES(5) || TRIES(6) || TRIES(7))

#ifdef REPORT
inline report() {
  printf("me %d w %d: pend %d act %d rty %d waiters %d done %d arch %d lock %d fetching %d left %d late %d:", me, w, pend, act, rty, waiters, done, arch, lock[0], fetching, left, lateAck);
  i = 1;
  do
  :: i <= RUNS ->
     if
     :: phase[i] != NONE -> printf(" [run %d task %d worker %d phase %d base %d token %d good %d by %d]", i, tk[i], wk[i], phase[i], base[i], token[i], (good & BIT(i)) != 0, by[i])
     :: else
     fi;
     i++
  :: else -> break
  od;
  printf("\n")
}
#else
inline report() { skip }
#endif

#if SUCCESSOR
/* What cannot matter any more is forgotten, and tokens that are over are left out of the count. */
#define TOKENED(r) (phase[r] == GRANTED || phase[r] == HELD || phase[r] == RETURNED || phase[r] == LEFTOVER || AT_WORK(r))
inline reduce() {
  n = fence + 1;
  me = 1;
  do
  :: me <= RUNS ->
     if
     :: TOKENED(me) && token[me] != 0 -> n = (token[me] < n -> token[me] : n)
     :: else -> token[me] = 0
     fi;
     if
     :: phase[me] == ACKED || phase[me] == RELEASED -> good = good & ~BIT(me)
     :: phase[me] == DEAD ->
        leaseless = leaseless & ~BIT(me);
        taken = taken & ~BIT(me);
        plain = plain & ~BIT(me);
        if
        :: lateAck & BIT(me)
        :: else ->
           out[me] = 0;
           base[me] = (HASLOCK(me) -> base[me] : 0)
        fi
     :: else
     fi;
     me++
  :: else -> break
  od;
  n = ((n - 1) / BLOCK) * BLOCK;
  fence = fence - n;
  me = 1;
  do
  :: me <= RUNS -> token[me] = (token[me] != 0 -> token[me] - n : 0); me++
  :: else -> break
  od;
  k = 0;
  do
  :: k < KEYS -> top[k] = (top[k] > n -> top[k] - n : 0); k++
  :: else -> break
  od
}
#else
inline reduce() { skip }
#endif

inline check() {
  d_step {
    report();
    i = 0;
    do
    :: i < TASKS -> assert(PLACES(i) == 1); i++                                  /* ONE_PLACE */
    :: else -> break
    od;
    assert(lse == act);                                                          /* LEASED */
    k = 0;
    do
    :: k < KEYS ->
       if
       :: ATWORKS(k) > 1 -> reach(5)
       :: else
       fi;
       assert(BELIEVERS(k) <= 1);                                                /* EXCLUSION */
       assert(lock[k] != 0 || (excused & BIT(k)) || !ANY(WAITS) || ANY(COMES) || TRIED); /* WAKES */
       k++
    :: else -> break
    od;
    me = 1;
    do
    :: me <= RUNS ->
       assert(!SUCCESSOR || phase[me] != KEPT && phase[me] != HELD || ACTIVE(me) || OUSTED(me) || (leaseless & BIT(me))); /* IN_MEMORY */
       if
       :: BURIED(me) -> over(me)
       :: else
       fi;
       me++
    :: else -> break
    od;
    reduce();
    me = 0; t = 0; u = 0; w = 0; n = 0; i = 0; k = 0; heir = 0; spare = 0;
    fused = 0; mine = 0; found = 0; usedUp = 0; bare = 0
  }
  COMPARE
}

/* ---- The steps ---------------------------------------------------------------------------------------------------------------- */

active proctype World() {
  BEGIN_TRACE
  do
  :: atomic {
  if
  /* A worker fetches: as many tasks as it has free slots, each with its lock. */
  :: if :: WORKER(MAY_FETCH) fi;
     EXPECT(FETCHES, w, NOBODY)
     admit(FETCH(w));
     if
     :: found ->
        fetching = fetching | BIT(w);
        if
        :: true
        :: EVENT(LATE) -> spend; lateFetch = lateFetch | BIT(w)
        fi
     :: else
     fi
  :: if :: WORKER(MAY_READ) fi;
     fetching = fetching & ~BIT(w);
     learn(FETCH(w), HELD);
     decide()
  /* The reply is lost: the fetch is recalled. What it granted is found by its name. */
  :: if :: WORKER(MAY_REFETCH) fi;
     spend;
#if MUTANT == FETCH_FORGETS
     learn(FETCH(w), LOST);
     found = 0;
     admit(FETCH(w));
     if :: found :: else -> fetching = fetching & ~BIT(w) fi;
#endif
#if MUTANT == PARKED_AGAIN
     me = 1;
     do
     :: me <= RUNS ->
        if
        :: GRANTED_BY(me, FETCH(w)) && !ACTIVE(me) -> phase[me] = HELD; by[me] = 0
        :: else
        fi;
        me++
     :: else -> break
     od;
#endif
     skip
  /* A fetch that was recalled before it arrived: refused by its mark. */
  :: if :: WORKER(MAY_LATEFETCH) fi;
     EXPECT(TOO_LATE, w, NOBODY)
     lateFetch = lateFetch & ~BIT(w);
#if MUTANT == FETCH_UNMARKED
     if
     :: !(fetching & BIT(w)) -> admit(FETCH(w)); learn(FETCH(w), LOST)
     :: else
     fi;
#endif
     skip
  /* A fetch of a process that was killed since: it cannot be recalled. */
  :: if :: WORKER(MAY_DEADFETCH) fi;
     EXPECT(FETCHES, w, NOBODY)
     orphanFetch = orphanFetch & ~BIT(w);
     if
     :: !(fetching & BIT(w)) -> admit(FETCH(w)); learn(FETCH(w), DEAD)
     :: else
     fi

  /* The handler's function begins, and returns. */
  :: if :: RUNOF(MAY_START) fi;
     EXPECT(STARTS, wk[me], tk[me])
     if
     :: base[me] != me -> reach((SUCCESSOR -> 10 : 1))
     :: else
     fi;
     begin()
  :: if :: RUNOF(MAY_RETURN) fi;
     EXPECT(RETURNS, wk[me], tk[me])
     ran = ran | BIT(tk[me]);
     if
     :: phase[me] == ABANDONED || (leaseless & BIT(me)) -> phase[me] = LEFTOVER
     :: else ->
        phase[me] = RETURNED;
        /* A success counts under a valid lease, and under one that has ended if no other owner has had a key since. */
        if
        :: (good & BIT(me)) || !(taken & BIT(me)) || MUTANT == COUNTS_TAKEN ->
           if
           :: !(good & BIT(me)) -> reach(9)
           :: else
           fi;
           assert(MUTANT != 0 && MUTANT != COUNTS_TAKEN || ALONE(0) && ALONE(KEYS - 1)); /* COUNTED */
           if
           :: true
           :: EVENT(RETRY) -> spend; out[me] = 1
           :: EVENT(ARCHIVE) -> spend; out[me] = 2
           fi
        :: else -> out[me] = 1
        fi;
        taken = taken & ~BIT(me)
     fi

#if SUCCESSOR
  /* The lease is handed off. */
  :: if :: RUNOF(MAY_HAND) fi;
     if
     :: SUCCEEDS(1, me) -> n = 1 :: SUCCEEDS(2, me) -> n = 2 :: SUCCEEDS(3, me) -> n = 3 :: SUCCEEDS(4, me) -> n = 4
     :: SUCCEEDS(5, me) -> n = 5 :: SUCCEEDS(6, me) -> n = 6 :: SUCCEEDS(7, me) -> n = 7
     fi;
     if
     :: base[me] != me -> reach(11)
     :: else
     fi;
     phase[n] = HELD;
     plain = plain & ~BIT(n);
     base[n] = base[me];
     good = good | BIT(n);
     token[n] = token[me] + (MUTANT != HAND_UNFENCED);
     if
     :: MUTANT == HAND_OWNED || MUTANT == HAND_SENT && (repeats & BIT(me))
     :: else -> base[me] = 0
     fi;
     if
     :: MUTANT == HAND_EARLY
     :: else -> good = good & ~BIT(me)
     fi
  /* The successor asks for its keys, which are free again. */
  :: if :: RUNOF(MAY_ASK) fi;
     EXPECT(ACQUIRES, wk[me], tk[me])
     reach(12);
     take();
     plain = plain & ~BIT(me);
     phase[me] = HELD
  /* It has been in memory for too long, or shutdown has begun: it is parked, or given back. */
  :: if :: RUNOF(MAY_UNKEEP) fi;
     EXPECT(PARKS, wk[me], tk[me])
     refuse()
  :: if :: RUNOF(MAY_UNKEPT) fi;
     EXPECT(GOES_BACK, wk[me], tk[me])
     leaveActive(me);
     if
     :: mine -> pend = pend | BIT(tk[me])
     :: else
     fi;
     over(me)
#endif

  /* A call with an ack, the first one or a repetition. */
  :: if :: RUNOF(MAY_ACK) fi;
     EXPECT(ENDS, wk[me], tk[me])
     assert(phase[me] == ACKED || ACTIVE(me) || OUSTED(me) || SUCCESSOR && (leaseless & BIT(me))); /* OWN_TASK */
     phase[me] = ACKED;
#if LATER
     repeated = (repeats & BIT(me)) != 0;
#endif
     repeats = repeats & ~BIT(me);
     ack(CARRIED(me), !STOPPING(me));
#if LATER
     repeated = 0;
#endif
     if
     :: GRANTS(me) -> reach(2)
     :: GRANTS(CARRIED(me))
     :: else -> hear()
     fi
  :: if :: RUNOF(MAY_HEAR) fi;
     hear();
     decide()
  /* The reply to it is lost. */
  :: if :: RUNOF(MAY_LOSE) fi;
     spend;
#if MUTANT == ACK_FORGETS
     learn(me, LOST);
#endif
#if MUTANT == ACK_UNRECALLED
     learn(CARRIED(me), LOST);
#endif
#if MUTANT == SYNCER_BY_ID
     again = again | BIT(tk[me]);
#endif
     giveUp()
  /* Or it has not even arrived when its caller gives it up. */
  :: if :: RUNOF(MAY_DELAY) fi;
     spend;
     lateAck = lateAck | BIT(me);
     if
     :: STOPPING(me)
     :: !STOPPING(me) && MUTANT == ACK_UNRECALLED -> unmarked = unmarked | BIT(me)
     :: !STOPPING(me) && MUTANT != ACK_UNRECALLED -> unmarked = unmarked | BIT(me); recalls = recalls | BIT(me)
     fi;
     giveUp()
  /* The fetch in a call that was given up is recalled. */
  :: if :: RUNOF(MAY_RECALL) fi;
     if
     :: GRANTS(GIVENUP(me)) && phase[me] == NONE -> reach(6)
     :: GRANTS(GIVENUP(me)) && phase[me] != NONE -> reach(7)
     :: else
     fi;
     learn(GIVENUP(me), HELD);
     decide();
     recalls = recalls & ~BIT(me);
#if MUTANT != ACK_UNMARKED
     unmarked = unmarked & ~BIT(me);
#endif
     forget(me)
  /* A call arrives that its caller has given up. Tasks that its fetch takes before the recall are found by that. */
  :: if :: RUNOF(MAY_LATE) fi;
     EXPECT(ENDS, wk[me], tk[me])
     lateAck = lateAck & ~BIT(me);
     if
     :: ACTIVE(me) && phase[me] == DEAD -> reach(3)
     :: (act & BIT(tk[me])) && !ACTIVE(me) -> reach(4)
     :: else
     fi;
     ack(GIVENUP(me), unmarked & BIT(me));
     unmarked = unmarked & ~BIT(me);
     if
     :: GRANTS(GIVENUP(me)) && (recalls & BIT(me)) && !mine -> reach(8)
     :: else
     fi;
     if
     :: phase[me] == DEAD -> learn(me, DEAD); learn(GIVENUP(me), DEAD)
     :: else ->
        if
        :: recalls & BIT(me)
        :: else -> learn(GIVENUP(me), LOST)
        fi;
        if
        :: phase[me] == NONE -> learn(me, LOST); over(me)
        :: UNSENT(me) -> phase[me] = ACKED
        :: else
        fi
     fi
#if MUTANT == SYNCER_BY_ID
  :: if :: RUNOF(MAY_SYNC) fi;
     again = again & ~BIT(tk[me]);
     ack(CARRIED(me), true);
     learn(me, HELD);
     learn(CARRIED(me), HELD);
     phase[me] = ABANDONED
#endif

  /* The function has not returned, or no ack is sent: asynq's own script alone, and the lock when the function has returned. */
  :: if :: RUNOF(MAY_TIMEOUT) fi;
     EXPECT(ENDS, wk[me], tk[me])
     spend;
     leaveActive(me);
     if
     :: mine -> rty = rty | BIT(tk[me])
     :: else
     fi;
     phase[me] = ABANDONED;
#if MUTANT == FUSED_EARLY
     w = wk[me];
     fused = 1;
     leaveLock(me);
     learn(me, HELD);
#endif
     skip
  :: if :: RUNOF(MAY_CLEAR) fi;
     EXPECT(RELEASES, wk[me], LESSEE(me))
     if
     :: MUTANT == LEASELESS_KEEPS
     :: else -> leaveLock(0)
     fi;
     over(me)

  /* A task in memory is given back: its lease is over, shutdown has begun, or it has been there for too long. */
  :: if :: RUNOF(MUST_BACK) :: RUNOF(MAY_BACK) fi;
     EXPECT(GOES_BACK, wk[me], tk[me])
     if :: MUST_BACK(me) :: else -> spend fi;
     leaveActive(me);
     if
     :: mine -> pend = pend | BIT(tk[me])
     :: else
     fi;
#if MUTANT == HEIR_GONE
     if
     :: base[me] != me -> standbyGone = standbyGone | BIT(base[me])
     :: else
     fi;
#endif
#if APART
     if
     :: base[me] != me && HASLOCK(me) -> phase[me] = LEFTOVER
     :: leaveLock(0); over(me)
     fi
#else
     if
     :: MUTANT == GIVEBACK_KEEPS
#if MUTANT == GIVEBACK_SILENT
     :: !mine && LEAVES(0) -> lock[0] = 0
#endif
     :: else -> leaveLock(0)
     fi;
     over(me)
#endif

#if APART
  /* Or its lock is released first. */
  :: if :: RUNOF(MAY_FREE_FIRST) fi;
     EXPECT(RELEASES, wk[me], LESSEE(me))
     if :: MUST_BACK(me) :: else -> spend fi;
     leaveLock(0);
     good = good & ~BIT(me);
     base[me] = 0;
     token[me] = 0
#endif

  /* The plain path: the handler takes its lock, parks when it is held, and releases it before the ack. */
  :: if :: RUNOF(MAY_CORRECT) fi;
     EXPECT(RELEASES, wk[me], tk[me])
     if
     :: MUTANT == CONFLICT_KEEPS
     :: else -> leaveLock(0)
     fi;
     corrected = 1;
     plain = plain | BIT(me);
     good = good & ~BIT(me);
     base[me] = 0;
     token[me] = 0
  :: if :: RUNOF(MAY_ACQUIRE) fi;
     if
     :: RUNNABLE(tk[me]) ->
        EXPECT(ACQUIRES, wk[me], tk[me])
        take();
        begin()
     :: else -> phase[me] = REFUSED
     fi
  :: if :: RUNOF(MAY_PARK) fi;
     EXPECT(PARKS, wk[me], tk[me])
     park();
     over(me)
  :: if :: RUNOF(MAY_RELEASE) fi;
     EXPECT(RELEASES, wk[me], tk[me])
#if LATER
     if
     :: true
     :: EVENT(LATE) -> spend; repeated = 1 /* in the code the ack releases it, and this one was given up once */
     fi;
#endif
     leaveLock(0);
#if LATER
     repeated = 0;
#endif
     phase[me] = RELEASED                                                        /* its ack is sent as any other */

  /* Locks and leases that end by themselves. */
  :: if :: KEY(DEADLOCK_OF) :: KEY(LIVELOCK_OF) fi;
     if :: DEADLOCK_OF(k) :: else -> spend fi;
     EXPECT(EXPIRES, NOBODY, k)
     expire(k)
  :: if :: RUNOF(MAY_DOUBT) fi;
     spend;
     good = good & ~BIT(me)
  :: if :: RUNOF(MAY_UNLEASE) fi;
     spend;
     leaseless = leaseless | BIT(me);
     unleased = unleased | BIT(tk[me])

  /* asynq's recoverer, and its forwarder. */
  :: if :: TASK(MAY_RECOVER) fi;
     EXPECT(RECOVERS, NOBODY, t)
     me = runOf[t];
     act = act & ~BIT(t);
     lse = lse & ~BIT(t);
     unleased = unleased & ~BIT(t);
     runOf[t] = 0;
     rty = rty | BIT(t);
#if MUTANT == RECOVERY_FREES
     leaveLock(0);
#endif
     skip
#if RECOVERY
  /* A worker has been silent for so long that its tasks may be taken back. Its leases end before, by its own clock. Then it is heard of. */
  :: if :: WORKER(MAY_SILENCE) fi;
     spend;
     silent = silent | BIT(w);
     me = 1;
     do
     :: me <= RUNS ->
        if
        :: wk[me] == w && phase[me] != DEAD && MUTANT != SILENT_TRUSTS -> good = good & ~BIT(me)
        :: else
        fi;
        me++
     :: else -> break
     od
  :: if :: WORKER(MAY_HEAR_OF) fi;
     silent = silent & ~BIT(w)
  /* Its locks are freed one by one, and its tasks are taken back. */
  :: if :: RUNOF(MAY_FREE) fi;
     EXPECT(FREES, NOBODY, tk[me])
     reach(15);
     spare = 0;
     i = base[me];
     k = 0;
     do
     :: k < KEYS ->
        if
        :: lock[k] == i -> lock[k] = 0; spare = spare | BIT(k)
        :: else
        fi;
        k++
     :: else -> break
     od;
     fence = fence + BLOCK;
     if
     :: phase[me] == RUNNING -> taken = taken | BIT(me)  /* another owner has had the key */
     :: phase[me] == RETURNED && out[me] == 0 -> out[me] = 1
     :: else
     fi;
     /* In order, the task is the first itself. Should it end after all, the timer of the next one is for that. */
     excused = excused | (ORDER -> spare : 0);
     k = 0;
     do
     :: k < KEYS ->
        if
        :: (spare & BIT(k)) && lock[k] == 0 -> n = spare; passOn(0); spare = n
        :: else
        fi;
        k++
     :: else -> break
     od
#if MUTANT == BACK_UNCHECKED
  :: if :: TASK(MAY_LOOK) fi;
     remnants = remnants | BIT(t)
#endif
  :: if :: TASK(MAY_BACK_TO) fi;
     EXPECT(TAKES_BACK, NOBODY, t)
#if MUTANT == BACK_UNCHECKED
     remnants = remnants & ~BIT(t);
#endif
     me = runOf[t];
     if
     :: phase[me] != DEAD -> reach(16)
     :: else
     fi;
     ousted = ousted | BIT(me);
     act = act & ~BIT(t);
     lse = lse & ~BIT(t);
     unleased = unleased & ~BIT(t);
     runOf[t] = 0;
     if
     :: MUTANT == BACK_IN_TWO && EVENT(CRASH) -> spend
     :: else -> pend = pend | BIT(t)
     fi
#endif
  :: if :: TASK(MAY_FORWARD) :: TASK(MAY_HURRY) fi;
     if :: MAY_FORWARD(t) :: else -> spend fi;
     EXPECT(FORWARDS, NOBODY, t)
     rty = rty & ~BIT(t);
     pend = pend | BIT(t)

  /* A worker is killed, or shuts down. */
  :: if :: WORKER(MAY_CRASH) fi;
     EXPECT(CRASHES, w, NOBODY)
     spend;
     me = 1;
     do
     :: me <= RUNS ->
        if
        :: wk[me] == w && (phase[me] != NONE || (lateAck & BIT(me))) && phase[me] != DEAD ->
           if
           :: (plain & BIT(me)) && phase[me] != KEPT -> excused = excused | NOTED(tk[me])
           :: else
           fi;
           if
           :: true
           :: MAY_DELAY(me) ->
              spend;
              lateAck = lateAck | BIT(me);
              if
              :: STOPPING(me)
              :: else -> unmarked = unmarked | BIT(me)
              fi
           fi;
           phase[me] = DEAD;
           by[me] = 0;
           good = good & ~BIT(me)
        :: else
        fi;
        me++
     :: else -> break
     od;
     me = 1;
     do
     :: me <= RUNS ->
        if
        :: wk[me] == w -> repeats = repeats & ~BIT(me); recalls = recalls & ~BIT(me); forget(me)
        :: else
        fi;
        me++
     :: else -> break
     od;
     fetching = fetching & ~BIT(w);
#if RECOVERY
     silent = silent & ~BIT(w);
#endif
     if
     :: true
     :: !(stopped & BIT(w)) && EVENT(LATE) -> spend; orphanFetch = orphanFetch | BIT(w)
     fi;
     if
     :: stopped & BIT(w) -> gone = gone | BIT(w)
     :: else
     fi
  :: MAY_STOP ->
     spend;
     stopped = stopped | BIT(LAST)
  :: MAY_EXIT ->
     EXPECT(EXITS, LAST, NOBODY)
     gone = gone | BIT(LAST);
     assert(!(STRANDED(1) || STRANDED(2) || STRANDED(3) || STRANDED(4) || STRANDED(5) || STRANDED(6) || STRANDED(7))) /* CLEAN_EXIT */
  fi;
  check()
  }
#ifndef TRACED
  :: timeout ->
     assert((done | arch) == ALL && act == 0);                                   /* ALL_END */
     assert(lock[0] == 0 && lock[KEYS - 1] == 0);                                /* ALL_FREE */
     break
#endif
  od
}
