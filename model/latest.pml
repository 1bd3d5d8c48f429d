/*
 * Latest: of the tasks with the same keys only the latest payload runs (docs/design.md, 5.9).
 *
 * scripts/model.sh checks this file exhaustively, once for each configuration; README.md says what is proved.
 *
 * Switches, all set with -D:
 *   PAYLOADS  how many payloads are accepted, one after another        (4)
 *   RUNS      runs that may be under way at the same time              (3)
 *   BUDGET    runs that fail, or are taken back from silent workers    (2)
 *   STALE     1: somebody who has read the message of a running task   (0)
 *             long ago ends its run with that, as asynq's recoverers do
 *   DELETED   1: a person may delete the newest task while it waits    (0)
 *   MUTANT    a protocol known to be wrong, see below                  (0 = the protocol of docs/design.md, 5.9)
 *   REACH     assert that a certain state is never reached             (0)
 *
 * A payload is its number. A task has the message that asynq keeps of it, which is a payload here, and a run has the message that it has
 * fetched. One lock stands for the keys. A worker that is silent goes on whenever it likes, or never: its run may take the lock late.
 */

#ifndef PAYLOADS
#define PAYLOADS 4
#endif
#ifndef RUNS
#define RUNS 3
#endif
#ifndef BUDGET
#define BUDGET 2
#endif
#ifndef STALE
#define STALE 0
#endif
#ifndef DELETED
#define DELETED 0
#endif
#ifndef MUTANT
#define MUTANT 0
#endif
#ifndef REACH
#define REACH 0
#endif

/* The protocols known to be wrong. */
#define NO_CHECK     1  /* a run begins whatever has begun before */
#define BESIDE       2  /* the number is in the task's hash, and not in the message */
#define INTO_RUNS    3  /* a task that runs gets the new payload */
#define TWO_STEPS    4  /* a call looks at the newest task, and acts on it in a second step */
#define TO_ACCEPTED  5  /* a run yields to a later payload that was accepted, and has not begun */
#define INTO_OVER    6  /* a task that is over gets the new payload */

/* What the states of REACH are. */
#define REPLACED     1  /* a payload has taken the place of another one */
#define BESIDE_A_RUN 2  /* a payload was enqueued beside a run */
#define YIELDED      3  /* a run has yielded */
#define LATE         4  /* a run has begun whose task was taken back */

#define NONE    0
#define WAITING 1
#define ACTIVE  2
#define OVER    3

/* The tasks, from 1 on; the one of index 0 is none. */
byte state[PAYLOADS + 1];
byte message[PAYLOADS + 1];
byte number[PAYLOADS + 1];   /* BESIDE alone: of the payload that was put last */
byte by[PAYLOADS + 1];       /* the run that has the task, from 1 on */
byte tasks;

/* The record. */
byte newest, ran;

/* The runs, from 1 on. */
#define FREE    0
#define FETCHED 1
#define LOCKED  2
#define WORKS   3
byte phase[RUNS + 1];
byte task[RUNS + 1];           /* its task */
byte payload[RUNS + 1];      /* that it has fetched */
byte holder;                 /* of the lock; 0 = free */

/* What the claims are about. */
byte accepted, begun, done, budget, old, deleted;
bool replaced, beside, yielded, late;

byte waits, works;           /* how many tasks do */

inline count() {
  waits = 0;
  works = 0;
  byte i;
  for (i : 1 .. PAYLOADS) {
    waits = waits + (state[i] == WAITING);
    works = works + (state[i] == ACTIVE)
  }
  i = 0
}

#define STILL (accepted == PAYLOADS && !waits && !works)

inline accept(waiting) {
  accepted++;
  if
  :: waiting ->
    message[newest] = accepted;
    number[newest] = accepted;
    replaced = 1
  :: else ->
    tasks++;
    state[tasks] = WAITING;
    message[tasks] = accepted;
    number[tasks] = accepted;
    beside = beside || newest && state[newest] == ACTIVE;
    newest = tasks
  fi;
  count()
}

#define REPLACES (newest && (state[newest] == WAITING || MUTANT == INTO_RUNS && state[newest] == ACTIVE || MUTANT == INTO_OVER && state[newest] == OVER))

proctype producer() {
  bool seen;
  do
  :: accepted < PAYLOADS && MUTANT != TWO_STEPS -> atomic { accept(REPLACES) }
  :: accepted < PAYLOADS && MUTANT == TWO_STEPS ->
    atomic { seen = REPLACES };
    atomic { accept(seen) }
  :: accepted == PAYLOADS -> break
  od
}

/* select_waiting chooses a task that waits: they are in several queues of asynq, and in none in order. */
inline select_waiting() {
  if
  :: state[1] == WAITING -> one = 1
  :: state[2] == WAITING -> one = 2
  :: state[3] == WAITING -> one = 3
#if PAYLOADS > 3
  :: state[4] == WAITING -> one = 4
#endif
  fi
}

/* fetch, lock, begin and end are the steps of a run. */
inline fetch(r) {
  select_waiting();
  state[one] = ACTIVE;
  by[one] = r;
  phase[r] = FETCHED;
  task[r] = one;
  payload[r] = message[one]
}

#define NUMBER(r) (MUTANT == BESIDE -> number[task[r]] : payload[r])

inline begin(r) {
  if
  :: MUTANT == TO_ACCEPTED && NUMBER(r) < accepted || NUMBER(r) < ran && MUTANT != NO_CHECK ->
    assert(payload[r] < begun); /* YIELDS_TO_ONE_THAT_HAS_BEGUN */
    yielded = 1;
    over(r, OVER)
  :: else ->
    ran = NUMBER(r);
    assert(payload[r] >= begun); /* ORDER */
    late = late || by[task[r]] != r;
    begun = payload[r];
    phase[r] = WORKS
  fi
}

/* over ends a run. Its acknowledgement says what becomes of the task, if that is still its own. */
inline over(r, becomes) {
  if
  :: by[task[r]] == r ->
    state[task[r]] = becomes;
    message[task[r]] = payload[r];
    by[task[r]] = 0
  :: else -> skip
  fi;
  if
  :: holder == r -> holder = 0
  :: else -> skip
  fi;
  phase[r] = FREE;
  task[r] = 0;
  payload[r] = 0
}

proctype worker(byte r) {
  byte one;
  do
  :: atomic { phase[r] == FREE && waits -> fetch(r); count(); one = 0 }
  :: atomic { phase[r] == FETCHED && !holder -> holder = r; phase[r] = LOCKED }
  :: atomic { phase[r] == LOCKED -> begin(r); count() }
  :: atomic { phase[r] == WORKS -> done = payload[r]; over(r, OVER); count() }
  :: atomic { phase[r] == WORKS && budget > 0 -> budget--; over(r, WAITING); count() }
  /* Its worker is silent: the task is taken back, and with it its lock. A run that works ends with its lease. */
  :: atomic { (phase[r] == FETCHED || phase[r] == LOCKED || phase[r] == WORKS) && budget > 0 && by[task[r]] == r ->
      budget--;
      state[task[r]] = WAITING;
      by[task[r]] = 0;
      if
      :: phase[r] == FETCHED -> skip
      :: else -> over(r, OVER)
      fi;
      count() }
  :: atomic { phase[r] == FETCHED && by[task[r]] != r -> over(r, OVER); count() } /* it never goes on */
  :: atomic { STILL -> break }
  od
}


active proctype others() {
  byte t, m;
  do
  :: atomic { STALE && budget > 0 && !old && newest && state[newest] == ACTIVE -> t = newest; m = message[newest]; old = 1 }
  :: atomic { old == 1 && state[t] == ACTIVE -> old = 2; state[t] = WAITING; message[t] = m; by[t] = 0; count() }
  :: atomic { DELETED && !deleted && newest && state[newest] == WAITING -> deleted = message[newest]; state[newest] = OVER; count() }
  :: atomic { STILL -> break }
  od
}

active proctype judge() {
  /* LAST is not claimed of a payload that was deleted, or whose run somebody has ended behind its back. */
  atomic { STILL ->
    assert(STALE || deleted == PAYLOADS || done == PAYLOADS); /* LAST */
  }
  assert(REACH != REPLACED || !replaced); /* REACHED REPLACED */
  assert(REACH != BESIDE_A_RUN || !beside); /* REACHED BESIDE */
  assert(REACH != YIELDED || !yielded); /* REACHED YIELDED */
  assert(REACH != LATE || !late) /* REACHED LATE */
}

init {
  byte r;
  atomic {
    budget = BUDGET;
    run producer();
    for (r : 1 .. RUNS) { run worker(r) }
    r = 0
  }
}
