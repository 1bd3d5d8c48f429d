/*
 * Fencing tokens on Redlock without consensus: three nodes, quorum two (docs/design.md, 3.3, 3.4 and 3.7).
 *
 * scripts/model.sh checks this file exhaustively, once for each configuration; README.md says what is proved.
 *
 * Switches, all set with -D:
 *   CLIENTS    how many clients                              (2)
 *   ATTEMPTS   acquisitions of each, one after another       (1), each with an owner value of its own
 *   BLOCK      K, tokens reserved by one grant               (1)
 *   EXPIRY     1: a lock can expire at any moment            (1)
 *   DUP        1: each request can arrive again, at any time (0)
 *   RETAKE     1: a committed client asks each node once     (0)
 *              more for the lock, at any time
 *   PROPS      proposals are 1..PROPS                        (3)
 *   SPREAD     counters start anywhere in 0..SPREAD          (2)
 *   MUTANT     a protocol known to be wrong, see below       (0 = the protocol of docs/design.md, 3.4)
 *   TIDY       0: without the reductions of inline tidy          (1, for a mutant 0)
 *   SORT       0: nodes are not sorted, for a readable trail (1)
 *   CLAIM      1: assert an order that is too strong         (0)
 *   REACH      assert that a certain state is never          (0)
 *              reached, to see that the model does reach it
 *
 * How the network is modelled. A request in flight is a flag of its (owner, node) pair: any of them can arrive next, or never.
 * An answer in flight is a register of the pair, from the moment at which the node acts; the client looks at any answers it
 * likes, whenever it likes, which is the same as any delay and any order of delivery. What follows makes the model smaller and
 * leaves out no behaviour that could break an assertion:
 *   - A request that the node refuses (HELD, LOST) changes nothing there. Its answer can only make a client give up, and a client
 *     can give up at any moment anyway. So refusals are not steps.
 *   - RENEW and RELEASE change nothing when they arrive twice in a row. With DUP=1 their flag stays set: they arrive any number of
 *     times. RELEASE's flag always stays set. ACQUIRE with DUP=1 can cause two grants on each node.
 *   - Sending ACQUIRE is one step with the first grant that it causes. To send later changes nothing on the nodes, and makes what
 *     ORDER_BY_START asserts stronger.
 *   - With EXPIRY=1 a lock expires when another owner is about to be granted, no sooner: a lock that stays longer only lets more
 *     RENEWs pass, and makes what ORDER_BY_COMMIT_IF_HELD asserts stronger. So ACQUIRE is granted whatever L says. RELEASE has only
 *     effects that expiry has too: giving up, releasing and starting the next attempt are one step.
 *   - A client asks for the lock again at any time after its commit, its release included. That it does so only on nodes that have lost
 *     the lock, after a renewal by a majority, leaves out behaviour and is not modelled. A later RENEW of what such a node has granted
 *     changes nothing there.
 *   - Clients are alike, so the first attempts start in the order of the clients' numbers. Nodes are alike: with SORT=1 they are
 *     sorted by their counters after each step.
 *   - A value that cannot be read again is set to 0, and an attempt that cannot commit any more ends (inline tidy). This relies
 *     on the protocol of docs/design.md, 3.4 (C never falls), and is left out of the mutants.
 * No reduction of Spin's own is needed: the verifier is built with -DNOREDUCE.
 */

#ifndef CLIENTS
#define CLIENTS 2
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 1
#endif
#ifndef BLOCK
#define BLOCK 1
#endif
#ifndef EXPIRY
#define EXPIRY 1
#endif
#ifndef DUP
#define DUP 0
#endif
#ifndef RETAKE
#define RETAKE 0
#endif
#ifndef PROPS
#define PROPS 3
#endif
#ifndef SPREAD
#define SPREAD 2
#endif
#ifndef MUTANT
#define MUTANT 0
#endif
#ifndef TIDY
#define TIDY (MUTANT == 0)
#endif
#ifndef SORT
#define SORT 1
#endif
#ifndef CLAIM
#define CLAIM 0
#endif
#ifndef REACH
#define REACH 0
#endif

/* The protocols known to be wrong. */
#define MAX_OF_INCR     1  /* C := C+K, token = max of the granted, never written back */
#define BLIND_WRITE     2  /* the write-back sets C := t, whatever stands there */
#define OWNER_ONLY      3  /* the write-back looks at L but not at C */
#define FIRST_ANSWER    4  /* early decision: the first granted answer is the token */
#define SO_FAR          5  /* early decision: a majority of the answers so far is taken for a quorum */
#define ANY_ANSWER      6  /* early decision: HELD counts as an answer like GRANTED */
#define CLOCK_ONLY      7  /* token = the client's own proposal */
#define MIN_OF_GRANTED  8  /* token = min of the granted */
#define SUM_OF_GRANTED  9  /* token = sum of the granted */
#define BLOCKS_OVERLAP 10  /* C := max(C+1, prop), yet K tokens are used */
#define COUNTER_ONLY   11  /* the write-back looks at C but not at L */
#define OWNER_REUSED   12  /* a client keeps its owner value for its next attempt */
#define BLIND_RELEASE  13  /* RELEASE deletes L without a check of its owner */
#define RETAKE_LOWERS  14  /* asking again sets C := t, whatever stands there */
#define RETAKE_COMMITS 15  /* asking again sets L and C := t where C <= t, before the commit too, and counts for it */

#define ONE_ROUND (MUTANT == MAX_OF_INCR || MUTANT == FIRST_ANSWER || MUTANT == SO_FAR || MUTANT == ANY_ANSWER || \
                   MUTANT == CLOCK_ONLY || MUTANT == MIN_OF_GRANTED || MUTANT == SUM_OF_GRANTED)

#define NODES  3
#define OWNERS (CLIENTS * ATTEMPTS)
#define AT(o, n) ((o) * NODES + (n))
#define BIT(n) (1 << (n))
#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define MIN(a, b) ((a) < (b) -> (a) : (b))

/* One owner value is one attempt of one client. 0 in L is no owner. */
#if MUTANT == OWNER_REUSED
#define VALUE(o) ((o) / ATTEMPTS + 1)
#else
#define VALUE(o) ((o) + 1)
#endif

/* Phases of an attempt. From DECIDED or COMMITTED to DONE the client has the lock, or believes so. */
#define IDLE      0
#define ASKING    1  /* ACQUIRE sent to all nodes */
#define DECIDED   2  /* a quorum has granted, with different counters; RENEW(t) sent to those that lag */
#define COMMITTED 3  /* a quorum holds t; RENEW(t) goes to all nodes from time to time (extension) */
#define DONE      4  /* RELEASE sent to all nodes */
#define OVER      5  /* nothing that the client may still do can matter */

/* The nodes. */
byte L[NODES];                 /* the owner value of the lock */
byte C[NODES];                 /* the counter */

/* The attempts, and what is in flight between them and the nodes. */
byte phase[OWNERS];
byte prop[OWNERS];
byte acquire[OWNERS * NODES];  /* how many grants the ACQUIREs in flight can still cause */
byte granted[OWNERS * NODES];  /* the counter in the answer GRANTED; 0 = no answer */
byte t[OWNERS];                /* the plan: commit this token */
byte renew[OWNERS];            /* bit n: RENEW(t) is in flight to node n */
byte ok[OWNERS];               /* bit n: node n has answered OK to RENEW(t) */
byte read[OWNERS];             /* bit n: the client has used the answer of node n; it reads no second one */
byte was[OWNERS];              /* the plan before, given up for a larger one */
byte late[OWNERS];             /* bit n: RENEW(was) is in flight to node n */
#if RETAKE
byte again[OWNERS];            /* bit n: ACQUIRE(t), sent after the commit, is in flight to node n */
#define AGAIN(o) again[o]
#else
#define AGAIN(o) 0
#endif

/* What the assertions need; the protocol does not see it. */
int  used;                     /* bit k: token k-K+1 belongs to a committed lease */
byte top;                      /* the largest of them */
byte floor[OWNERS];            /* top, when the attempt started */
#if REACH
byte commits;
#endif

hidden byte x;                 /* scratch, not part of the state */
hidden int  y;

#define HOLDS(o, n)   (granted[AT(o, n)] == t[o] || (ok[o] & BIT(n)))
#define HOLDERS(o)    (HOLDS(o, 0) + HOLDS(o, 1) + HOLDS(o, 2))
#define STILL(o, n)   (L[n] == VALUE(o) && C[n] == t[o])
#define STILLS(o)     (STILL(o, 0) + STILL(o, 1) + STILL(o, 2))
#define HAS(o)        (phase[o] == DECIDED || phase[o] == COMMITTED)

/* ---- Values that cannot be read again, and the order of the nodes ----------------------------------------------------- */

#define OPEN(o) (phase[o] == ASKING || phase[o] == DECIDED)

#if OWNERS == 2
#define ALL(f)  (f(0) && f(1))
#define ALL2(f, n) (f(0, n) && f(1, n))
#define EACH(f) f(0); f(1)
#elif OWNERS == 3
#define ALL(f)  (f(0) && f(1) && f(2))
#define ALL2(f, n) (f(0, n) && f(1, n) && f(2, n))
#define EACH(f) f(0); f(1); f(2)
#else
#define ALL(f)  (f(0) && f(1) && f(2) && f(3))
#define ALL2(f, n) (f(0, n) && f(1, n) && f(2, n) && f(3, n))
#define EACH(f) f(0); f(1); f(2); f(3)
#endif

/* RENEW(token) can still be accepted, now or after a second grant. */
#define CAN_TAKE(o, n, token) ((L[n] == VALUE(o) && C[n] <= (token)) || (acquire[AT(o, n)] && C[n] + BLOCK <= (token)))
/* It can still change C. */
#define CAN_RAISE(o, n, token) ((L[n] == VALUE(o) && C[n] < (token)) || (acquire[AT(o, n)] && C[n] + BLOCK < (token)))

inline tidy_renew(o, n) {
  if
  :: (renew[o] & BIT(n)) && (phase[o] == DECIDED && !(ok[o] & BIT(n)) -> !CAN_TAKE(o, n, t[o]) : !CAN_RAISE(o, n, t[o])) ->
     renew[o] = renew[o] & ~BIT(n)
  :: else
  fi;
  if
  :: (late[o] & BIT(n)) && !CAN_RAISE(o, n, was[o]) -> late[o] = late[o] & ~BIT(n)
  :: else
  fi;
  if
  :: phase[o] == DECIDED && ((granted[AT(o, n)] < t[o] && !CAN_TAKE(o, n, t[o])) || (granted[AT(o, n)] > t[o] && was[o])) ->
     granted[AT(o, n)] = 0
  :: else
  fi;
  if
  :: (read[o] & BIT(n)) && acquire[AT(o, n)] == 0 -> read[o] = read[o] & ~BIT(n)
  :: else
  fi;
  if
  :: EXPIRY && L[n] == VALUE(o) && !OPEN(o) && !((renew[o] | late[o]) & BIT(n)) -> L[n] = 0
  :: else
  fi
}

/* Node n may yet hold t for the client, or a larger token for its second plan. */
#define MAY_HOLD(o, n) (HOLDS(o, n) || CAN_TAKE(o, n, t[o]) || \
                        (was[o] == 0 && (acquire[AT(o, n)] || granted[AT(o, n)] > t[o])))

#define NO_CLOCK(o, n) (acquire[AT(o, n)] == 0 || prop[o] <= C[n] + 1)

inline tidy_owner(o) {
  tidy_renew(o, 0);
  tidy_renew(o, 1);
  tidy_renew(o, 2);
  if
  :: phase[o] != DECIDED && late[o] == 0 -> was[o] = 0
  :: else
  fi;
#if EXPIRY
  if
  :: phase[o] == DECIDED && MAY_HOLD(o, 0) + MAY_HOLD(o, 1) + MAY_HOLD(o, 2) < 2 -> leave(o, OVER)
  :: (phase[o] == COMMITTED || phase[o] == DONE) && renew[o] == 0 && AGAIN(o) == 0 -> phase[o] = OVER
  :: else
  fi;
#endif
  if
  :: !OPEN(o) && renew[o] == 0 && AGAIN(o) == 0 -> t[o] = 0
  :: else
  fi;
  if
  :: phase[o] != IDLE && NO_CLOCK(o, 0) && NO_CLOCK(o, 1) && NO_CLOCK(o, 2) -> prop[o] = 0
  :: else
  fi
}

#define CLOSED(o) (phase[o] > DECIDED)
#define GONE(o, n) (phase[o] != IDLE && acquire[AT(o, n)] == 0 && !(OPEN(o) && L[n] == VALUE(o)))

inline tidy_node(n) {
  if
  :: EXPIRY && ALL2(GONE, n) ->
     L[n] = 0;
     C[n] = 0;
#if RETAKE
     for (y : 0 .. OWNERS - 1) { again[y] = again[y] & ~BIT(n) }
     y = 0
#endif
  :: else
  fi
}

#define SWAP(v, a, b) x = v[a]; v[a] = v[b]; v[b] = x
#define SWAP_BITS(v, a, b) v = (((v >> (a)) ^ (v >> (b))) & 1 -> v ^ (BIT(a) | BIT(b)) : v)

inline swap_owner(o, a, b) {
  SWAP(acquire, AT(o, a), AT(o, b));
  SWAP(granted, AT(o, a), AT(o, b));
  SWAP_BITS(renew[o], a, b);
  SWAP_BITS(ok[o], a, b);
  SWAP_BITS(read[o], a, b);
  SWAP_BITS(late[o], a, b);
#if RETAKE
  SWAP_BITS(again[o], a, b);
#endif
  skip
}

#define KEY(n) ((C[n] << 10) + (L[n] << 6) + (acquire[AT(0, n)] << 4) + (acquire[AT(1, n)] << 2) + acquire[AT(OWNERS - 1, n)])

inline sort_nodes(a, b) {
  if
  :: KEY(a) > KEY(b) ->
     SWAP(L, a, b);
     SWAP(C, a, b);
     swap_owner(0, a, b);
     swap_owner(1, a, b);
#if OWNERS > 2
     swap_owner(2, a, b);
#endif
#if OWNERS > 3
     swap_owner(3, a, b);
#endif
     skip
  :: else
  fi
}

/* Ends every step. */
inline tidy() {
#if TIDY
  EACH(tidy_owner);
  tidy_node(0);
  tidy_node(1);
  tidy_node(2);
  EACH(tidy_owner);
  if
  :: ALL(CLOSED) ->
     used = 0;
     top = 0;
     for (y : 0 .. NODES - 1) { L[y] = 0; C[y] = 0 }
     for (y : 0 .. OWNERS * NODES - 1) { acquire[y] = 0 }
     for (y : 0 .. OWNERS - 1) { phase[y] = OVER; prop[y] = 0; t[y] = 0; renew[y] = 0; was[y] = 0; late[y] = 0 }
#if RETAKE
     for (y : 0 .. OWNERS - 1) { again[y] = 0 }
#endif
  :: else
  fi;
#if SORT
  sort_nodes(0, 1);
  sort_nodes(1, 2);
  sort_nodes(0, 1);
#endif
  y = 0;
#endif
  skip
}

inline leave(o, to) {
  phase[o] = to;
  floor[o] = 0;
  ok[o] = 0;
  read[o] = 0;
  granted[AT(o, 0)] = 0;
  granted[AT(o, 1)] = 0;
  granted[AT(o, 2)] = 0
}

/* ---- Clients ---------------------------------------------------------------------------------------------------------- */

#if EXPIRY
#define HAS_LEFT(o) (phase[o] != IDLE)
#else
#define HAS_LEFT(o) (phase[o] == DONE)
#endif
/* A client's next attempt follows its last one; first attempts come in the order of the clients. */
#define MAY_START(o) (phase[o] == IDLE && ((o) % ATTEMPTS -> HAS_LEFT(BEFORE(o)) : ((o) == 0 || phase[NEIGHBOUR(o)] != IDLE)))
#define BEFORE(o)    ((o) - ((o) % ATTEMPTS > 0))
#define NEIGHBOUR(o) ((o) - ((o) >= ATTEMPTS -> ATTEMPTS : 0))

inline start(o, p) {
#if EXPIRY && ATTEMPTS > 1
  if
  :: (o) % ATTEMPTS -> leave(BEFORE(o), DONE)
  :: else
  fi;
#endif
  phase[o] = ASKING;
  prop[o] = p;
  floor[o] = top;
  acquire[AT(o, 0)] = 1 + DUP;
  acquire[AT(o, 1)] = 1 + DUP;
  acquire[AT(o, 2)] = 1 + DUP
}

/* The block t-K+1..t, as bits of used. */
#define TOKENS(t) (((1 << BLOCK) - 1) << (t))

inline commit(o) {
  assert(t[o] + BLOCK < 32);                                                    /* the width of used, no claim */
  assert((used & TOKENS(t[o])) == 0);                                           /* UNIQUE */
  assert(floor[o] == 0 || t[o] >= floor[o] + BLOCK);                                   /* ORDER_BY_START */
#if MUTANT == 0
  assert(STILLS(o) < 2 || top == 0 || t[o] >= top + BLOCK);                     /* ORDER_BY_COMMIT_IF_HELD */
#endif
#if CLAIM || !EXPIRY
  assert(top == 0 || t[o] >= top + BLOCK);                                       /* ORDER_BY_COMMIT */
#endif
  used = used | TOKENS(t[o]);
  top = MAX(top, t[o]);
#if REACH
  commits = commits + 1;
  assert(REACH != 1 || commits < OWNERS);                                       /* REACHED ALL_COMMIT: every attempt */
  assert(REACH != 2 || phase[o] != DECIDED || was[o] != 0 || commits < 2);      /* REACHED BY_RENEW: a second commit */
  assert(REACH != 3 || was[o] == 0 || commits < 2);                             /* REACHED BY_SECOND_PLAN: a second commit */
#endif
  leave(o, COMMITTED);
#if MUTANT == 0 || RETAKE
  renew[o] = 7;
#endif
#if RETAKE && MUTANT != RETAKE_COMMITS
  again[o] = 7;
#endif
  skip
}

inline exclusion(o) {
#if !EXPIRY
  assert((HAS(0) && (o) != 0) + (HAS(1) && (o) != 1)
#if OWNERS > 2
       + (HAS(2) && (o) != 2)
#endif
#if OWNERS > 3
       + (HAS(3) && (o) != 3)
#endif
       == 0);                                                                   /* EXCLUSION */
#endif
  skip
}

/* Nodes i and j have granted; the answer of i came first, that of the third node is not known yet. */
#define MAY_DECIDE(o, i, j) (phase[o] == ASKING && granted[AT(o, i)] && granted[AT(o, j)])

inline decide(o, i, j) {
  exclusion(o);
#if MUTANT == FIRST_ANSWER
  t[o] = granted[AT(o, i)];
#elif MUTANT == CLOCK_ONLY
  t[o] = prop[o];
#elif MUTANT == MIN_OF_GRANTED
  t[o] = MIN(granted[AT(o, i)], granted[AT(o, j)]);
#elif MUTANT == SUM_OF_GRANTED
  t[o] = granted[AT(o, i)] + granted[AT(o, j)];
#else
  t[o] = MAX(granted[AT(o, i)], granted[AT(o, j)]);
#endif
  if
  :: ONE_ROUND || granted[AT(o, i)] == granted[AT(o, j)] -> commit(o)
  :: else ->
     phase[o] = DECIDED;
     read[o] = BIT(i) | BIT(j);
#if MUTANT == RETAKE_COMMITS
     again[o] = 7;
#endif
     renew[o] = (granted[AT(o, i)] < t[o] -> BIT(i) : BIT(j))
  fi
}

/* SO_FAR: one answer, and it holds t: "a majority". */
inline decide_on_one(o, i) {
  exclusion(o);
  t[o] = granted[AT(o, i)];
  commit(o)
}

#define MAY_COMMIT(o) (phase[o] == DECIDED && HOLDERS(o) >= 2)

/* A straggler with a smaller counter is asked to take t too. */
#define MAY_JOIN(o, n) (phase[o] == DECIDED && granted[AT(o, n)] && granted[AT(o, n)] < t[o] && !((renew[o] | ok[o]) & BIT(n)))

inline join(o, n) {
  renew[o] = renew[o] | BIT(n);
  read[o] = read[o] | BIT(n)
}

/* A straggler with a larger counter: it does not count, or it is the new plan. A client that reads one answer of each node can
 * come here once. */
#define MAY_REPLAN(o, n) (phase[o] == DECIDED && was[o] == 0 && granted[AT(o, n)] > t[o])

inline replan(o, n) {
  read[o] = 7;
  was[o] = t[o];
  late[o] = renew[o];
  t[o] = granted[AT(o, n)];
  ok[o] = 0;
  renew[o] = ((granted[AT(o, 0)] && granted[AT(o, 0)] < t[o]) * 1) |
             ((granted[AT(o, 1)] && granted[AT(o, 1)] < t[o]) * 2) |
             ((granted[AT(o, 2)] && granted[AT(o, 2)] < t[o]) * 4)
}

/* After its work, or because it gave up: a quorum has become impossible, or a time limit has passed. */
#define MAY_RELEASE(o) (!EXPIRY && (phase[o] == ASKING || HAS(o)))

proctype Client(byte o) {
end:
  do
  :: atomic {
  if
#if MUTANT == SO_FAR
  :: d_step { phase[o] == ASKING && granted[AT(o, 0)] -> decide_on_one(o, 0) }
  :: d_step { phase[o] == ASKING && granted[AT(o, 1)] -> decide_on_one(o, 1) }
  :: d_step { phase[o] == ASKING && granted[AT(o, 2)] -> decide_on_one(o, 2) }
#else
  :: d_step { MAY_DECIDE(o, 0, 1) -> decide(o, 0, 1) }
  :: d_step { MAY_DECIDE(o, 0, 2) -> decide(o, 0, 2) }
  :: d_step { MAY_DECIDE(o, 1, 2) -> decide(o, 1, 2) }
#endif
#if MUTANT == FIRST_ANSWER
  :: d_step { MAY_DECIDE(o, 1, 0) -> decide(o, 1, 0) }
  :: d_step { MAY_DECIDE(o, 2, 0) -> decide(o, 2, 0) }
  :: d_step { MAY_DECIDE(o, 2, 1) -> decide(o, 2, 1) }
#endif
  :: d_step { MAY_COMMIT(o) -> commit(o) }
  :: d_step { MAY_JOIN(o, 0) -> join(o, 0) }
  :: d_step { MAY_JOIN(o, 1) -> join(o, 1) }
  :: d_step { MAY_JOIN(o, 2) -> join(o, 2) }
  :: d_step { MAY_REPLAN(o, 0) -> replan(o, 0) }
  :: d_step { MAY_REPLAN(o, 1) -> replan(o, 1) }
  :: d_step { MAY_REPLAN(o, 2) -> replan(o, 2) }
  :: d_step { MAY_RELEASE(o) -> leave(o, DONE) }
  fi;
  d_step { tidy() }
  }
  od
}

/* ---- Nodes ------------------------------------------------------------------------------------------------------------ */

#define READS(o, n) (phase[o] == ASKING || (phase[o] == DECIDED && !(read[o] & BIT(n))))

/* ACQUIRE_i(owner, prop): if L exists, return (L==owner ? GRANTED : HELD, C);
 *                         C := max(C+K, prop+K-1); L := owner; return (GRANTED, C) */
#define MAY_GRANT(o, n) (acquire[AT(o, n)] && (EXPIRY || L[n] == 0))
#define MAY_FIRST(o, n) (MAY_START(o) && (EXPIRY || L[n] == 0))

inline grant(o, n, answer) {
#if MUTANT == MAX_OF_INCR
  C[n] = C[n] + BLOCK;
#elif MUTANT == BLOCKS_OVERLAP
  C[n] = MAX(C[n] + 1, prop[o]);
#else
  C[n] = MAX(C[n] + BLOCK, prop[o] + BLOCK - 1);
#endif
  L[n] = VALUE(o);
  acquire[AT(o, n)] = acquire[AT(o, n)] - 1;
  if
  :: answer && READS(o, n) -> granted[AT(o, n)] = C[n]
  :: else
  fi;
#if REACH
  assert(REACH != 4 || phase[o] < COMMITTED || C[n] <= top || commits < 2);   /* REACHED STRAGGLER_ABOVE: after a second commit */
#endif
  skip
}

/* ACQUIRE_i(owner, t) of a committed client: a grant like any other. */
#if MUTANT == RETAKE_COMMITS
#define MAY_RETAKE(o, n) ((again[o] & BIT(n)) && phase[o] == DECIDED && C[n] <= t[o])
#elif RETAKE
#define MAY_RETAKE(o, n) ((again[o] & BIT(n)) && (EXPIRY || L[n] == 0))
#endif

inline do_retake(o, n) {
#if MUTANT == RETAKE_COMMITS
  C[n] = t[o];
  ok[o] = ok[o] | BIT(n);
#elif MUTANT == RETAKE_LOWERS
  C[n] = t[o];
#else
  C[n] = MAX(C[n] + BLOCK, t[o]);
#endif
  L[n] = VALUE(o);
#if RETAKE
  again[o] = again[o] & ~BIT(n);
#if REACH
  assert(REACH != 5 || commits < 2);                                            /* REACHED BY_RETAKE: after a second commit */
#endif
#endif
  skip
}

/* A second copy of ACQUIRE finds the lock its own. */
#define MAY_REREAD(o, n) (DUP && acquire[AT(o, n)] && L[n] == VALUE(o) && READS(o, n) && granted[AT(o, n)] != C[n])

/* ANY_ANSWER: HELD is an answer too. */
#define MAY_REFUSE(o, n) (acquire[AT(o, n)] && L[n] != 0 && L[n] != VALUE(o) && phase[o] == ASKING && C[n])

/* RENEW_i(owner, t): if L != owner or C > t, return LOST;
 *                    C := t; return OK */
#if MUTANT == BLIND_WRITE
#define ACCEPTS(o, n, token) (1)
#elif MUTANT == OWNER_ONLY
#define ACCEPTS(o, n, token) (L[n] == VALUE(o))
#elif MUTANT == COUNTER_ONLY
#define ACCEPTS(o, n, token) (C[n] <= (token))
#else
#define ACCEPTS(o, n, token) (L[n] == VALUE(o) && C[n] <= (token))
#endif

#define MAY_RENEW(o, n) ((renew[o] & BIT(n)) && ACCEPTS(o, n, t[o]) && \
                         (C[n] != t[o] || (phase[o] == DECIDED && !(ok[o] & BIT(n)))))

inline do_renew(o, n) {
  C[n] = t[o];
  if
  :: phase[o] == DECIDED -> ok[o] = ok[o] | BIT(n)
  :: else
  fi;
  if
  :: !DUP && (phase[o] != COMMITTED || MUTANT) -> renew[o] = renew[o] & ~BIT(n)
  :: else
  fi
}

#define MAY_RENEW_LATE(o, n) ((late[o] & BIT(n)) && ACCEPTS(o, n, was[o]) && C[n] != was[o])

inline do_renew_late(o, n) {
  C[n] = was[o];
  if
  :: !DUP -> late[o] = late[o] & ~BIT(n)
  :: else
  fi
}

/* RELEASE_i(owner): if L == owner, delete L. */
#if MUTANT == BLIND_RELEASE
#define MAY_UNLOCK(o, n) (!EXPIRY && phase[o] == DONE && L[n] != 0)
#else
#define MAY_UNLOCK(o, n) (!EXPIRY && phase[o] == DONE && L[n] == VALUE(o))
#endif

proctype Node(byte n) {
end:
  do
  :: atomic {
  if
#define FIRST_REQUESTS(o, p) \
  :: d_step { MAY_FIRST(o, n) -> start(o, p); grant(o, n, 1) }

#if PROPS == 1
#define REQUESTS(o) FIRST_REQUESTS(o, 1) OTHER_REQUESTS(o)
#elif PROPS == 2
#define REQUESTS(o) FIRST_REQUESTS(o, 1) FIRST_REQUESTS(o, 2) OTHER_REQUESTS(o)
#elif PROPS == 3
#define REQUESTS(o) FIRST_REQUESTS(o, 1) FIRST_REQUESTS(o, 2) FIRST_REQUESTS(o, 3) OTHER_REQUESTS(o)
#else
#define REQUESTS(o) FIRST_REQUESTS(o, 1) FIRST_REQUESTS(o, 2) FIRST_REQUESTS(o, 3) FIRST_REQUESTS(o, 4) OTHER_REQUESTS(o)
#endif

#define OTHER_REQUESTS(o) \
  :: d_step { MAY_GRANT(o, n) -> grant(o, n, 1) } \
  :: d_step { MAY_RENEW(o, n) -> do_renew(o, n) } \
  :: d_step { MAY_RENEW_LATE(o, n) -> do_renew_late(o, n) } \
  :: d_step { MAY_UNLOCK(o, n) -> L[n] = 0 }

#define SECOND_COPIES(o) \
  :: d_step { MAY_GRANT(o, n) && granted[AT(o, n)] -> grant(o, n, 0) } \
  :: d_step { MAY_REREAD(o, n) -> granted[AT(o, n)] = C[n] }

#define REFUSALS(o) \
  :: d_step { MAY_REFUSE(o, n) -> granted[AT(o, n)] = C[n]; acquire[AT(o, n)] = acquire[AT(o, n)] - 1 }

#define RETAKES(o) \
  :: d_step { MAY_RETAKE(o, n) -> do_retake(o, n) }

  REQUESTS(0)
  REQUESTS(1)
#if OWNERS > 2
  REQUESTS(2)
#endif
#if OWNERS > 3
  REQUESTS(3)
#endif
#if RETAKE
  RETAKES(0)
  RETAKES(1)
#if OWNERS > 2
  RETAKES(2)
#endif
#if OWNERS > 3
  RETAKES(3)
#endif
#endif
#if DUP
  SECOND_COPIES(0)
  SECOND_COPIES(1)
#if OWNERS > 2
  SECOND_COPIES(2)
#endif
#if OWNERS > 3
  SECOND_COPIES(3)
#endif
#endif
#if MUTANT == ANY_ANSWER
  REFUSALS(0)
  REFUSALS(1)
#if OWNERS > 2
  REFUSALS(2)
#endif
#endif
  fi;
  d_step { tidy() }
  }
  od
}

init {
  atomic {
    /* What earlier attempts left behind: counters that differ. */
    select(used : 0 .. SPREAD);
    C[0] = used;
    select(used : 0 .. SPREAD);
    C[1] = used;
    select(used : 0 .. SPREAD);
    C[2] = used;
    used = 0;
end_unsorted:
    C[0] <= C[1] && C[1] <= C[2];
    run Node(0);
    run Node(1);
    run Node(2);
    run Client(0);
    run Client(1);
#if OWNERS > 2
    run Client(2);
#endif
#if OWNERS > 3
    run Client(3);
#endif
  }
}
