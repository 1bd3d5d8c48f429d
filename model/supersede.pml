/*
 * Supersede: a task that is refused has the runs that hold its key stop, and takes their place (docs/design.md, 5.10).
 *
 * scripts/model.sh checks this file exhaustively, once for each configuration; README.md says what is proved.
 *
 * Switches, all set with -D:
 *   KINDS     which of the three tasks supersede: bit t-1 for task t   (7: all)
 *   BUDGET    runs that fail, or whose workers die                     (1)
 *   MUTANT    a protocol known to be wrong, see below                  (0 = the protocol of docs/design.md, 5.10)
 *   REACH     assert that a certain state is never reached             (0)
 *
 * The tasks are enqueued one after another, have one key, and are of the group that those of KINDS supersede. A message that was sent may
 * arrive at any later moment, repeatedly, or never. A handler may return at any moment after it has begun, told to stop or not.
 */

#ifndef KINDS
#define KINDS 7
#endif
#ifndef BUDGET
#define BUDGET 1
#endif
#ifndef MUTANT
#define MUTANT 0
#endif
#ifndef REACH
#define REACH 0
#endif

/* The protocols known to be wrong. */
#define NO_LOOK        1 /* a message counts, whatever has become of its task */
#define LOOKS_TOO_SOON 2 /* the receiver looks at the task first, and then for the runs that have the key */
#define ALL_YIELD      3 /* a run yields to each task that supersedes its group */
#define BY_ATTEMPT     4 /* a task counts from its first refusal in this attempt */
#define BY_REFUSAL     5 /* a task counts from its first refusal, and its begin is not noted */
#define FREES_FIRST    6 /* the key is taken from a run before its lease ends */
#define ENDS_BESIDE    7 /* Grace ends although the handler has returned */
#define ENDS_ALL       8 /* a task that is parked ends all that wait to supersede its group */

/* What the states of REACH are. */
#define STOPPED   1 /* a run has stopped because it was told to */
#define DEPOSED   2 /* Grace has ended, and the successor runs beside the handler */
#define ENDED     3 /* a task that waited has ended */
#define DONE_TOLD 4 /* a run that was told is done */
#define TOO_LATE  5 /* a message has arrived whose task is over */

#define TASKS 3
#define SUPERSEDES(t) ((KINDS >> (t - 1)) & 1)
#define BIT(t) (1 << (t - 1))

/* What becomes of a task. */
#define NOT_YET 0
#define PENDING 1 /* a worker may have it, and ask for the key */
#define WAITS   2
#define RUNS    3
#define OVER    4
byte state[TASKS + 1];

/* In Redis. */
byte noted[TASKS + 1]; /* since when it counts: its first refusal or begin; 0 = neither */
bool sent[TASKS + 1];
byte holder;           /* of the key; 0 = free */

/* In the process that runs the task. */
byte mine[TASKS + 1];  /* since when the run counts */
byte by[TASKS + 1];    /* who has told it to stop */
byte message[TASKS + 1]; /* the task whose message its process has in hand */
bool found[TASKS + 1]; /* the run was there before its process has looked at that task */
bool lease[TASKS + 1], returned[TASKS + 1], succeeded[TASKS + 1];

/* What the claims are about. */
byte clock, budget;
byte since[TASKS + 1]; /* when the task was first refused or began, in its whole life */
byte over;             /* the tasks that are */
byte before[TASKS + 1]; /* those that were when the run began */
bool counts[TASKS + 1]; /* its handler has succeeded under its lease */
bool seen;             /* what REACH asks for */

#define ALL_OVER (over == (1 << TASKS) - 1)

inline begins(t) {
  assert(!lease[1] && !lease[2] && !lease[3]); /* EXCLUSION */
  holder = t;
  lease[t] = 1;
  state[t] = RUNS;
  before[t] = over;
  clock++;
  since[t] = (since[t] -> since[t] : clock);
  noted[t] = (noted[t] || MUTANT == BY_REFUSAL -> noted[t] : clock);
  mine[t] = (noted[t] -> noted[t] : clock);
  seen = seen || REACH == DEPOSED && (state[1] == RUNS && t != 1 || state[2] == RUNS && t != 2 || state[3] == RUNS && t != 3)
}

/* older finds the task other among those that wait to supersede the group, and were refused before t. */
#define OLDER(other, t) (other != t && SUPERSEDES(other) && state[other] == WAITS && \
  (MUTANT == ENDS_ALL || noted[other] < noted[t]))

inline refuse(t) {
  clock = (noted[t] -> clock : clock + 1);
  noted[t] = (noted[t] -> noted[t] : clock);
  since[t] = (since[t] -> since[t] : clock);
  state[t] = WAITS;
  if
  :: SUPERSEDES(t) ->
    sent[t] = 1;
    older = OLDER(1, t) * BIT(1) | OLDER(2, t) * BIT(2) | OLDER(3, t) * BIT(3)
  :: else -> skip
  fi
}

/* ends ends a task in favour of another one. */
inline ends(one, next) {
  assert(!SUPERSEDES(one) || since[next] > since[one]); /* BY_A_NEWER_ONE */
  state[one] = OVER;
  over = over | BIT(one)
}

/* leaves is what remains of a run in its process, and its key is free. */
inline leaves(t) {
  lease[t] = 0;
  holder = (holder == t -> 0 : holder);
  by[t] = 0;
  returned[t] = 0;
  succeeded[t] = 0;
  counts[t] = 0;
  mine[t] = 0;
  before[t] = 0;
  found[t] = 0;
  message[t] = (MUTANT == LOOKS_TOO_SOON -> message[t] : 0) /* it would find no run to stop */
}

inline acknowledges(t) {
  if
  :: succeeded[t] && lease[t] ->
    state[t] = OVER;
    over = over | BIT(t);
    seen = seen || REACH == DONE_TOLD && by[t]
  :: else -> /* it has stopped, or its lease has ended */
    assert(!counts[t]); /* COUNTS */
    seen = seen || REACH == STOPPED;
    ends(t, by[t])
  fi;
  leaves(t)
}

proctype life(byte t) {
  byte older, other;
  do
  :: atomic { state[t] == NOT_YET && (t == 1 || state[t - 1] != NOT_YET) -> state[t] = PENDING }
  :: atomic { state[t] == PENDING && !holder -> begins(t) }
  :: atomic { state[t] == PENDING && holder -> refuse(t) }
  :: atomic { state[t] == WAITS -> state[t] = PENDING } /* it is woken, or its timer ends */
  /* The older ones that it has found end, each in a call of its own, if they still wait. */
  :: atomic { older ->
      other = (older & 1 -> 1 : (older & 2 -> 2 : 3));
      older = older & ~BIT(other);
      if
      :: state[other] == WAITS -> ends(other, t); seen = seen || REACH == ENDED
      :: else -> skip
      fi;
      other = 0 }
  /* The handler returns: it has succeeded, has stopped, or has failed. */
  :: atomic { state[t] == RUNS && !returned[t] -> returned[t] = 1; succeeded[t] = 1; counts[t] = lease[t] }
  :: atomic { state[t] == RUNS && !returned[t] && by[t] -> returned[t] = 1 }
  :: atomic { state[t] == RUNS && !returned[t] && !by[t] && budget > 0 ->
      budget--;
      noted[t] = (MUTANT == BY_ATTEMPT -> 0 : noted[t]);
      leaves(t);
      state[t] = PENDING }
  :: atomic { state[t] == RUNS && returned[t] -> acknowledges(t) }
  :: atomic { state[t] == RUNS && budget > 0 -> budget--; leaves(t); state[t] = PENDING }
  :: atomic { ALL_OVER -> break }
  od
}

#define COMES(t) (state[t] == PENDING || state[t] == WAITS)

#define YIELDS(r, t) (!SUPERSEDES(r) || MUTANT == ALL_YIELD || noted[t] > mine[r])

/* ARRIVES tells whether the message of a task may arrive at a process that has none in hand. */
#define ARRIVES(t) (!message[r] && !looked && r != t && sent[t] && (state[r] == RUNS || MUTANT == LOOKS_TOO_SOON))

/* process has the run of task r. It receives messages of others, and ends Grace. */
proctype process(byte r) {
  bool looked;
  do
  :: atomic { ARRIVES(1) -> message[r] = 1; found[r] = 1 }
  :: atomic { ARRIVES(2) -> message[r] = 2; found[r] = 1 }
  :: atomic { ARRIVES(3) -> message[r] = 3; found[r] = 1 }
  :: atomic { message[r] && !looked ->
      if
      :: COMES(message[r]) || MUTANT == NO_LOOK -> looked = 1
      :: else -> message[r] = 0; found[r] = 0; seen = seen || REACH == TOO_LATE
      fi }
  :: atomic { looked ->
      if
      :: message[r] && state[r] == RUNS && !returned[r] && (found[r] || MUTANT == LOOKS_TOO_SOON) && YIELDS(r, message[r]) ->
        assert(!(before[r] & BIT(message[r]))); /* BY_ONE_THAT_COMES */
        by[r] = message[r]
      :: else -> skip
      fi;
      message[r] = 0;
      found[r] = 0;
      looked = 0 }
  /* Grace ends: the lease, and then the key. */
  :: atomic { state[r] == RUNS && by[r] && lease[r] && holder == r && (!returned[r] || MUTANT == ENDS_BESIDE) ->
      if
      :: MUTANT == FREES_FIRST -> holder = 0
      :: else -> lease[r] = 0
      fi }
  :: atomic { state[r] == RUNS && by[r] && !lease[r] && holder == r -> holder = 0 }
  :: atomic { ALL_OVER -> break }
  od
}

active proctype judge() {
  atomic { ALL_OVER -> skip }
  assert(REACH != STOPPED || !seen); /* REACHED STOPPED */
  assert(REACH != DEPOSED || !seen); /* REACHED DEPOSED */
  assert(REACH != ENDED || !seen); /* REACHED ENDED */
  assert(REACH != DONE_TOLD || !seen); /* REACHED DONE_TOLD */
  assert(REACH != TOO_LATE || !seen) /* REACHED TOO_LATE */
}

init {
  byte t;
  atomic {
    budget = BUDGET;
    for (t : 1 .. TASKS) {
      run life(t);
      run process(t)
    }
    t = 0
  }
}
