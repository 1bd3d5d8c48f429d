/*
 * Depose: an operator takes a key from its holder (docs/design.md, 3.11), on one lock server or on three.
 *
 * scripts/model.sh checks this file exhaustively, once for each configuration; README.md says what is proved.
 *
 * Switches, all set with -D:
 *   NODES    lock servers, 1 or 3                                   (1)
 *   BLOCK    tokens that the victim and the next holder reserve     (2)
 *   TRIES    operators that depose the victim, together or in turn  (2)
 *   PROPS    proposals are 1..PROPS                                 (2)
 *   SPREAD   counters start anywhere in 0..SPREAD                   (1)
 *   BEGUN    1: at the start the victim has a bare majority, and an (0)
 *            ACQUIRE in flight to each other node
 *   EXPIRY   1: the locks of holders can expire at any moment       (0)
 *   RETAKE   1: the victim asks each node once more for its lock,   (0)
 *            at any moment after its commit
 *   MUTANT   a protocol known to be wrong, see below                (0 = the protocol of docs/design.md, 3.11)
 *   REACH    assert that a certain state is never reached           (0)
 *   SORT     0: nodes are not sorted                                (1)
 *
 * How the network is modelled. A request in flight is a bit of its owner: any of them can arrive next, or never. An answer is known
 * to its client at once, which is the same as an answer in flight that the client is bound to count as "may have it". A client acts
 * whenever it likes: a victim that is stopped and resumes late is one whose next step comes late. Nodes are alike: with SORT=1 they are
 * sorted after each step. A value that cannot be read again is set to 0.
 */

#ifndef NODES
#define NODES 1
#endif
#ifndef BLOCK
#define BLOCK 2
#endif
#ifndef TRIES
#define TRIES 2
#endif
#ifndef PROPS
#define PROPS 2
#endif
#ifndef SPREAD
#define SPREAD 1
#endif
#ifndef BEGUN
#define BEGUN 0
#endif
#ifndef EXPIRY
#define EXPIRY 0
#endif
#ifndef RETAKE
#define RETAKE 0
#endif
#ifndef MUTANT
#define MUTANT 0
#endif
#ifndef REACH
#define REACH 0
#endif
#ifndef SORT
#define SORT 1
#endif

/* The protocols known to be wrong. */
#define NO_RAISE       1  /* DEPOSE leaves the counter: C := max(C, prop) */
#define FROM_FIRST     2  /* DEPOSE counts from the victim's first token, not from the last one that it may hand off */
#define PLAIN_DELETE   3  /* the operator deletes the lock, without raising the counter */
#define NO_FLOOR       4  /* the resource is not told */
#define FLOOR_LATE     5  /* the key is released before the resource is told */
#define NEXT_OVERLAPS  6  /* ACQUIRE sets C := max(C+1, prop), yet BLOCK tokens are used */
#define TWO_STEPS      7  /* DEPOSE deletes the lock, and takes it in a second step */
#define TAKES_ANY      8  /* DEPOSE takes the lock from any owner */
#define UNDONE         9  /* a DEPOSE without an answer is undone */
#define MINORITY_UNDONE 10 /* a DEPOSE that cannot reach a majority is undone on the nodes that it has reached */
#define UNMARKED      11  /* DEPOSE does not mark the victim as given up */
#define MARKED_THERE  12  /* DEPOSE marks the victim only on the nodes where it has the lock */
#define FLOOR_EARLY   13  /* the floor is the largest counter granted, before it is committed */

#define QUORUM (NODES / 2 + 1)
#define V 0                    /* the victim */
#define W 1                    /* the next holder */
#define O 2                    /* the first operator */
#define OWNERS (2 + TRIES)
#define IS_OPERATOR(o) ((o) >= O)
#define VALUE(o) ((o) + 1)     /* 0 in L is no owner */
#define AT(o, n) ((o) * NODES + (n))
#define BIT(n) (1 << (n))
#define HAS_BIT(set, n) ((set) & BIT(n))
#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define ALL (BIT(NODES) - 1)
#if NODES == 1
#define COUNT(f, o) (f(o, 0))
#define MAX_GOT(o)  got[AT(o, 0)]
#else
#define COUNT(f, o) (f(o, 0) + f(o, 1) + f(o, 2))
#define MAX_GOT(o)  MAX(got[AT(o, 0)], MAX(got[AT(o, 1)], got[AT(o, 2)]))
#endif

/* Phases. */
#define IDLE      0
#define ASKING    1  /* ACQUIRE or DEPOSE is sent to all nodes */
#define COMMITTED 2  /* a quorum has held t */
#define FLOORED   3  /* an operator: the resource refuses all tokens below t */
#define OVER      4  /* it releases what it has; an operator: the Depose has succeeded or changed nothing */
#define DEAD      5  /* an operator that has died, or failed: what it has taken stays until it expires */

/* The nodes. */
byte L[NODES];               /* the owner of the lock */
byte C[NODES];               /* the counter */
bool mark[NODES];            /* late ACQUIREs of the victim are refused */
byte record[NODES];          /* the owner by which the victim was deposed */

/* The clients, and what is in flight between them and the nodes. */
byte phase[OWNERS];
byte prop[OWNERS];
byte ask[OWNERS];            /* bit n: ACQUIRE or DEPOSE is in flight to node n */
byte got[OWNERS * NODES];    /* the counter that node n is known to hold for the client; 0 = none */
byte renew[OWNERS * NODES];  /* RENEW with this token is in flight to node n; 0 = none */
byte t[OWNERS];              /* the committed token, the last of the block */
byte held[OWNERS];           /* bit n: node n has answered HELD to an operator */
byte again;                  /* bit n: ACQUIRE(t) of the committed victim is in flight to node n */

/* The resource. */
byte stored;                 /* it refuses smaller tokens */

/* What the assertions need; the protocol does not see it. */
bool floored;                /* an operator has raised stored */
bool expired;                /* the lock of an operator that died has expired */
bool after;                  /* W has sent its first request after the last floor */

hidden byte x;               /* scratch, not part of the state */

#define GOT(o, n)    (got[AT(o, n)] > 0)
#define SAME(o, n)   (got[AT(o, n)] > 0 && got[AT(o, n)] == MAX_GOT(o))
#define LOCKED(o, n) (L[n] == VALUE(o))
#define HELD(o, n)   (HAS_BIT(held[o], n) > 0)
#define MAYBE(o, n)  (got[AT(o, n)] > 0 || HAS_BIT(ask[o], n) > 0)
#define WON(o)       (phase[o] == ASKING && COUNT(GOT, o) >= QUORUM)
#define HAS(o)       (WON(o) || phase[o] == COMMITTED)

/* When the next holder has the key, the victim has released it or never had it, or the resource refuses it. */
inline exclusion() {
  assert(EXPIRY || expired || floored || !(HAS(V) && HAS(W)));                  /* EXCLUSION */
  skip
}

/* Once the resource was told, no token of the victim is accepted. */
inline refused() {
  assert(!floored || phase[V] != COMMITTED || t[V] < stored);                   /* REFUSED */
  skip
}

/* ---- Values that cannot be read again, and the order of the nodes ----------------------------------------------------- */

#define SWAP(v, a, b) x = v[a]; v[a] = v[b]; v[b] = x
#define SWAP_BITS(v, a, b) v = (((v >> (a)) ^ (v >> (b))) & 1 -> v ^ (BIT(a) | BIT(b)) : v)
#define SWAP_OWNER(o, a, b) \
  SWAP(got, AT(o, a), AT(o, b)); SWAP(renew, AT(o, a), AT(o, b)); SWAP_BITS(ask[o], a, b); SWAP_BITS(held[o], a, b)

#define ASKED(o, n) (HAS_BIT(ask[o], n) > 0)
#define BITS(n) (ASKED(V, n) + (ASKED(W, n) << 1) + (ASKED(O, n) << 2) + (ASKED(OWNERS - 1, n) << 3) + ((HAS_BIT(again, n) > 0) << 4) + \
                 (mark[n] << 5) + (HELD(O, n) << 6) + (HELD(OWNERS - 1, n) << 7))
#define KEY(n)  ((C[n] << 16) + (L[n] << 12) + (record[n] << 8) + BITS(n))
#define PAIR(o, n) ((got[AT(o, n)] << 4) + renew[AT(o, n)])
#define KEY2(n) ((PAIR(V, n) << 24) + (PAIR(W, n) << 16) + (PAIR(O, n) << 8) + PAIR(OWNERS - 1, n))

inline sort_nodes(a, b) {
  if
  :: KEY(a) > KEY(b) || (KEY(a) == KEY(b) && KEY2(a) > KEY2(b)) ->
     SWAP(L, a, b);
     SWAP(C, a, b);
     SWAP(mark, a, b);
     SWAP(record, a, b);
     SWAP_BITS(again, a, b);
     SWAP_OWNER(V, a, b);
     SWAP_OWNER(W, a, b);
     SWAP_OWNER(O, a, b);
#if TRIES > 1
     SWAP_OWNER(O + 1, a, b);
#endif
     x = 0
  :: else
  fi
}

#define IN_FLIGHT(n) (ASKED(O, n) || ASKED(OWNERS - 1, n))

/* Ends every step. */
inline tidy() {
  for (x : 0 .. NODES - 1) {
    if
    :: mark[x] ->                                          /* it refuses what is in flight, and what is sent later */
       ask[V] = ask[V] & ~BIT(x);
       again = again & ~BIT(x);
       mark[x] = RETAKE && phase[V] < COMMITTED
    :: else
    fi;
    if
    :: phase[O] != IDLE && phase[OWNERS - 1] != IDLE && !IN_FLIGHT(x) -> record[x] = 0
    :: else
    fi
  }
  for (x : 0 .. OWNERS - 1) {
    if
    :: phase[x] != IDLE && ask[x] == 0 -> prop[x] = 0
    :: else
    fi;
    if
    :: phase[x] >= OVER && !(x == V && again) -> t[x] = 0
    :: else
    fi
  }
  x = 0;
#if SORT && NODES > 1
  sort_nodes(0, 1);
  sort_nodes(1, 2);
  sort_nodes(0, 1);
#endif
  skip
}

/* One step: what it needs, and what it does. */
#define STEP(when, does) :: d_step { when -> does; tidy() }

/* ---- Clients ---------------------------------------------------------------------------------------------------------- */

inline forget(o) {
  got[AT(o, 0)] = 0;
  renew[AT(o, 0)] = 0;
#if NODES > 1
  got[AT(o, 1)] = 0;
  renew[AT(o, 1)] = 0;
  got[AT(o, 2)] = 0;
  renew[AT(o, 2)] = 0;
#endif
  held[o] = 0
}

/* An operator deposes an owner that it sees, or whose Depose is on record. */
#define SEEN(o, n) (LOCKED(V, n) || ((o) > O && record[n]))
#define MAY_START(o) (phase[o] == IDLE && (IS_OPERATOR(o) -> COUNT(SEEN, o) > 0 : 1))

inline start(o, p) {
  phase[o] = ASKING;
  prop[o] = p;
  ask[o] = ALL;
  if
  :: o == W -> after = floored
  :: else
  fi
}

/* A lock is committed once a quorum has held the largest counter. */
inline commit(o) {
  t[o] = MAX_GOT(o);
  phase[o] = COMMITTED;
  forget(o);
  if
  :: o == V ->
     again = (RETAKE -> ALL : 0);
     refused()
  :: o == W ->
     assert(!floored || (EXPIRY && !after) || t[W] - BLOCK + 1 > stored);       /* NEXT */
#if REACH
     assert(REACH != 1 || !after);                                              /* REACHED NEXT_HOLDER: after a Depose */
#endif
     skip
  :: else
  fi
}

inline raise_floor(o, token) {
#if MUTANT != NO_FLOOR
  stored = MAX(stored, token);
#endif
  floored = 1;
  after = 0;
#if REACH
  assert(REACH != 2 || phase[V] != COMMITTED);                                  /* REACHED VICTIM: with a token */
  assert(REACH != 3 || o == O || phase[O] != DEAD);                             /* REACHED REPEATED: after a failure */
#endif
  refused()
}

inline leave(o, to) {
  phase[o] = to;
  forget(o)
}

inline renewal(o, n) {
  renew[AT(o, n)] = MAX_GOT(o)
}

#define MAY_RENEW(o, n) (WON(o) && GOT(o, n) && got[AT(o, n)] < MAX_GOT(o) && renew[AT(o, n)] == 0)

/* An operator undoes what it has done only if a majority says that another holder has the key. */
#if MUTANT == UNDONE
#define MAY_UNDO(o) (phase[o] == ASKING)
#elif MUTANT == MINORITY_UNDONE
#define MAY_UNDO(o) (phase[o] == ASKING && COUNT(MAYBE, o) < QUORUM)
#else
#define MAY_UNDO(o) (phase[o] == ASKING && COUNT(HELD, o) >= QUORUM)
#endif

proctype Client(byte o) {
end:
  do
  STEP(MAY_START(o), start(o, 1))
#if PROPS > 1
  STEP(MAY_START(o), start(o, 2))
#endif
#if PROPS > 2
  STEP(MAY_START(o), start(o, 3))
#endif
  STEP(WON(o) && COUNT(SAME, o) >= QUORUM && !(IS_OPERATOR(o) && MUTANT == FLOOR_EARLY), commit(o))
  STEP(MAY_RENEW(o, 0), renewal(o, 0))
#if NODES > 1
  STEP(MAY_RENEW(o, 1), renewal(o, 1))
  STEP(MAY_RENEW(o, 2), renewal(o, 2))
#endif
  /* The holders release the key when they like, and give up when they like. */
  STEP(!IS_OPERATOR(o) && (phase[o] == ASKING || phase[o] == COMMITTED), leave(o, OVER))
  /* An operator goes on, undoes a DEPOSE that has changed nothing, or dies. */
#if MUTANT == FLOOR_LATE
  STEP(IS_OPERATOR(o) && phase[o] == COMMITTED, phase[o] = FLOORED)
  STEP(phase[o] == FLOORED, raise_floor(o, t[o]); leave(o, OVER))
#else
#if MUTANT == FLOOR_EARLY
  STEP(IS_OPERATOR(o) && WON(o), t[o] = MAX_GOT(o); phase[o] = FLOORED; raise_floor(o, t[o]); forget(o))
#endif
  STEP(IS_OPERATOR(o) && phase[o] == COMMITTED, phase[o] = FLOORED; raise_floor(o, t[o]))
  STEP(phase[o] == FLOORED, leave(o, OVER))
#endif
  STEP(IS_OPERATOR(o) && MAY_UNDO(o), leave(o, OVER))
  STEP(IS_OPERATOR(o) && phase[o] >= ASKING && phase[o] <= FLOORED, leave(o, DEAD))
  od
}

/* ---- Nodes ------------------------------------------------------------------------------------------------------------ */

/* The answer. One that comes after the client has left, or committed, is of no use. */
inline answer(o, n) {
  if
  :: phase[o] == ASKING -> got[AT(o, n)] = C[n]
  :: else
  fi
}

/* ACQUIRE(owner, prop), also of a committed victim that has lost the lock here. */
#define REFUSES(o, n) (L[n] != 0 || ((o) == V && mark[n]))

inline acquire(o, n, proposal) {
#if MUTANT == NEXT_OVERLAPS
  C[n] = MAX(C[n] + 1, proposal);
#else
  C[n] = MAX(C[n] + BLOCK, proposal + BLOCK - 1);
#endif
  L[n] = VALUE(o);
  answer(o, n);
  exclusion();
  if
  :: o == V -> assert(!floored || COUNT(LOCKED, V) < QUORUM)                    /* GONE */
  :: else
  fi
}

/* DEPOSE(v, o, prop) */
#if MUTANT == TAKES_ANY
#define TAKES(o, n) (1)
#else
#define TAKES(o, n) (L[n] == 0 || L[n] == VALUE(V) || L[n] == record[n])
#endif

inline depose(o, n) {
#if MUTANT == UNMARKED
  skip;
#elif MUTANT == MARKED_THERE
  mark[n] = mark[n] || L[n] == VALUE(V);
#else
  mark[n] = 1;
#endif
  if
#if MUTANT == TWO_STEPS
  :: TAKES(o, n) && L[n] == VALUE(V) ->
     L[n] = 0                                                                   /* the request stays in flight */
#endif
  :: TAKES(o, n) && !(MUTANT == TWO_STEPS && L[n] == VALUE(V)) ->
     ask[o] = ask[o] & ~BIT(n);
     assert(L[n] != VALUE(W));                                                  /* NOT_THE_NEXT */
#if MUTANT == NO_RAISE
     C[n] = MAX(C[n], prop[o]);
#elif MUTANT == FROM_FIRST
     C[n] = MAX(MAX(C[n] + 1, BLOCK) - BLOCK + 1, prop[o]);
#else
     C[n] = MAX(C[n] + 1, prop[o]);
#endif
     record[n] = VALUE(o);
#if MUTANT == PLAIN_DELETE
     L[n] = 0;
     phase[o] = OVER
#else
     L[n] = VALUE(o);
     answer(o, n)
#endif
  :: !TAKES(o, n) ->
     ask[o] = ask[o] & ~BIT(n);
     held[o] = held[o] | BIT(n)
  fi
}

/* RENEW(owner, t) */
inline do_renew(o, n) {
  if
  :: L[n] == VALUE(o) && C[n] <= renew[AT(o, n)] ->
     C[n] = renew[AT(o, n)];
     got[AT(o, n)] = C[n]
  :: else -> got[AT(o, n)] = 0
  fi;
  renew[AT(o, n)] = 0
}

/* RELEASE(owner), and expiry. */
#define RELEASES(o) (phase[o] == OVER || (MUTANT == FLOOR_LATE && IS_OPERATOR(o) && phase[o] == FLOORED))
#define EXPIRES(o)  ((EXPIRY && !IS_OPERATOR(o)) || phase[o] == DEAD)

inline expire(o, n) {
  L[n] = 0;
  expired = expired || phase[o] == DEAD
}

proctype Node(byte n) {
end:
  do
#define HOLDER_REQUESTS(o) \
  STEP(HAS_BIT(ask[o], n) && !REFUSES(o, n), ask[o] = ask[o] & ~BIT(n); acquire(o, n, prop[o]))
#define OPERATOR_REQUESTS(o) \
  STEP(HAS_BIT(ask[o], n), depose(o, n)) \
  STEP(MUTANT == MINORITY_UNDONE && HAS_BIT(ask[o], n) && phase[o] == ASKING, ask[o] = ask[o] & ~BIT(n)) /* it fails */
#define ALL_REQUESTS(o) \
  STEP(renew[AT(o, n)], do_renew(o, n)) \
  STEP(L[n] == VALUE(o) && RELEASES(o), L[n] = 0) \
  STEP(L[n] == VALUE(o) && EXPIRES(o), expire(o, n))
  HOLDER_REQUESTS(V)
  HOLDER_REQUESTS(W)
  OPERATOR_REQUESTS(O)
  ALL_REQUESTS(V)
  ALL_REQUESTS(W)
  ALL_REQUESTS(O)
#if TRIES > 1
  OPERATOR_REQUESTS(O + 1)
  ALL_REQUESTS(O + 1)
#endif
#if RETAKE
  STEP(HAS_BIT(again, n) && !REFUSES(V, n), again = again & ~BIT(n); acquire(V, n, t[V] - BLOCK + 1))
#endif
  od
}

init {
  atomic {
    byte c;
    select(c : 0 .. SPREAD);
    C[0] = c;
#if NODES > 1
    select(c : 0 .. SPREAD);
    C[1] = c;
    select(c : 0 .. SPREAD);
    C[2] = c;
#endif
    c = 0;
#if BEGUN
    L[0] = VALUE(V);
    C[0] = SPREAD + BLOCK;
#if NODES > 1
    L[1] = VALUE(V);
    C[1] = SPREAD + BLOCK;
    ask[V] = BIT(2);
#endif
    phase[V] = COMMITTED;
    t[V] = SPREAD + BLOCK;
    again = (RETAKE -> ALL : 0);
#endif
    run Node(0);
#if NODES > 1
    run Node(1);
    run Node(2);
#endif
    run Client(V);
    run Client(W);
    run Client(O);
#if TRIES > 1
    run Client(O + 1);
#endif
  }
}
