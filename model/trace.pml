/*
 * A recorded run as the only thing that may happen: fused.pml includes this file with -DTRACED, and scripts/traces.sh runs it.
 *
 * The file that TRACE names in the environment is a run, one event a line: what was done by whom with which task, and the state of Redis
 * afterwards. A step of fused.pml that a run shows goes on only if it is the next event, and only if it leaves the state that was recorded.
 * All other steps, which are those that nobody but a worker knows of, must leave the state as it is. So the assertion ACCEPTED fails if the
 * run is a behaviour of the model, and the search ends without an error if it is none.
 *
 * What is compared of a task: in which of asynq's sets it is, how many runs it has begun, and for which key it waits. Of a key: which run
 * of which task owns the lock, and how often its fence counter has risen.
 */

#define FETCHES     1
#define STARTS      2
#define RETURNS     3
#define ENDS        4
#define GOES_BACK   5
#define PARKS       6
#define ACQUIRES    7
#define RELEASES    8
#define EXPIRES     9
#define RECOVERS   10
#define FORWARDS   11
#define CRASHES    12
#define EXITS      14
#define FREES      15
#define TAKES_BACK 16
#define TOO_LATE   17 /* a fetch that was recalled takes tasks */

short at;                     /* the next event */
byte kind, whose, which;      /* what it is */
short allowed;                /* the events of EVENTS that this run may have had; left says how many */
bit shown;                    /* the present step is that event */
bit agrees;                   /* what it leaves is what was recorded */

byte nth[RUNS + 1];           /* the run is the nth of its task */
byte times[TASKS];            /* runs that a task has begun */
byte ownerTask[KEYS];         /* whose run has taken the lock, */
byte ownerNth[KEYS];          /* and which one that was */
byte raised[KEYS];            /* how often the fence counter has risen */

#define BEGIN_TRACE          c_code { readTrace(); };
#define EXPECT(what, v, x)   (kind == what && whose == (v) && which == (x)); shown = 1;
#define NOTE(what)           what;
#define COMPARE              compare()

/* The task that has taken the lock on which run r relies. Each task of a recorded run has one key. */
#define LESSEE(r)            ownerTask[NOTED(tk[r]) == 2]

inline ran_once_more(r, x) { times[x]++; nth[r] = times[x] }

inline owned(j, r) { raised[j]++; ownerTask[j] = tk[r]; ownerNth[j] = nth[r] }

inline compare() {
  if
  :: shown ->
     shown = 0;
     c_code { now.agrees = explains(now.at); };
     agrees;
     agrees = 0;
     c_code { now.at++; nextEvent(); };
     assert(kind != 0)                                                           /* ACCEPTED */
  :: else ->
     c_code { now.agrees = unchanged(); };
     agrees;
     agrees = 0
  fi
}

c_decl {

#define MOST_EVENTS 1000

  /* seen is what is compared after an event; it has no value between the parts of one script. */
  struct seen { int place[4], times[4], waits[4], owner[2], nth[2], raised[2]; };
  static struct event { int kind, whose, which, whole; struct seen seen; } events[MOST_EVENTS];
  static int length, furthest, tries;
  static char told[8][400];
}

c_code {
  static void found(struct seen *s) {
    int x, j, bit;
    memset(s, 0, sizeof *s);
    for (x = 0; x < TASKS; x++) {
      bit = 1 << x;
      s->place[x] = (now.pend & bit) ? 0 : (now.act & bit) ? 1 : (now.rty & bit) ? 2 : (now.done & bit) ? 3 : (now.arch & bit) ? 4 : 5;
      s->times[x] = now.times[x];
      s->waits[x] = (now.rty & bit) && (now.waiters & bit) ? 1 + now.waitsFor[x] : 0;
    }
    for (j = 0; j < KEYS; j++) {
      s->owner[j] = now.lock[j] ? 1 + now.ownerTask[j] : 0;
      s->nth[j] = now.lock[j] ? now.ownerNth[j] : 0;
      s->raised[j] = now.raised[j];
    }
  }

  static void print(char *to, struct seen *s) {
    static const char *places[] = { "pending", "active", "retry", "done", "archived", "nowhere" };
    int x, j, n = 0;
    for (x = 0; x < TASKS; x++) {
      n += sprintf(to + n, "t%d %s in run %d", x, places[s->place[x]], s->times[x]);
      if (s->waits[x]) n += sprintf(to + n, " waits for k%d", s->waits[x] - 1);
      n += sprintf(to + n, ", ");
    }
    for (j = 0; j < KEYS; j++) {
      if (s->owner[j]) n += sprintf(to + n, "k%d of t%d run %d", j, s->owner[j] - 1, s->nth[j]);
      else n += sprintf(to + n, "k%d free", j);
      n += sprintf(to + n, " raised %d%s", s->raised[j], j + 1 < KEYS ? ", " : "");
    }
  }

  /* What the furthest event would have left, in the ways that the model knows. */
  static void try(int event, struct seen *s) {
    char text[400];
    int i;
    if (event < furthest) return;
    if (event > furthest) { furthest = event; tries = 0; }
    print(text, s);
    for (i = 0; i < tries; i++) if (!strcmp(told[i], text)) return;
    if (tries < 8) strcpy(told[tries++], text);
  }

  static int explains(int event) {
    struct seen s;
    if (!events[event].whole) return 1;
    found(&s);
    if (!memcmp(&s, &events[event].seen, sizeof s)) return 1;
    try(event, &s);
    return 0;
  }

  static int unchanged(void) {
    struct seen s;
    if (!events[now.at - 1].whole) return 1; /* it is compared after the last part of the script */
    found(&s);
    return !memcmp(&s, &events[now.at - 1].seen, sizeof s);
  }

  static void nextEvent(void) {
    if (now.at > furthest) { furthest = now.at; tries = 0; }
    now.kind = now.at < length ? events[now.at].kind : 0;
    now.whose = events[now.at].whose;
    now.which = events[now.at].which;
  }

  static void tell(void) {
    int i;
    printf("furthest %d of %d\n", furthest, length);
    for (i = 0; i < tries; i++) printf("model: %s\n", told[i]);
  }

  static void fail(const char *what) { fprintf(stderr, "trace: %s\n", what); _exit(3); }

  static void readTrace(void) {
    FILE *f;
    int mask, most, i;
    if (length) return; /* the search comes here once */
    f = getenv("TRACE") ? fopen(getenv("TRACE"), "r") : NULL;
    if (!f) fail("cannot read the file that TRACE names");
    if (fscanf(f, "%d %d", &mask, &most) != 2) fail("it is not said which events of EVENTS there may be, and how many");
    now.allowed = mask;
    now.left = most;
    for (;;) {
      struct event *e = &events[length];
      if (length == MOST_EVENTS - 1) fail("too many events");
      if (fscanf(f, "%d %d %d %d", &e->kind, &e->whose, &e->which, &e->whole) != 4) break;
      for (i = 0; i < TASKS; i++)
        if (fscanf(f, "%d %d %d", &e->seen.place[i], &e->seen.times[i], &e->seen.waits[i]) != 3) fail("a line is too short");
      for (i = 0; i < KEYS; i++)
        if (fscanf(f, "%d %d %d", &e->seen.owner[i], &e->seen.nth[i], &e->seen.raised[i]) != 3) fail("a line is too short");
      length++;
    }
    if (!feof(f)) fail("a line is no event");
    fclose(f);
    if (length < 2) fail("there are no events");
    now.at = 1;
    nextEvent();
    atexit(tell);
  }
}
