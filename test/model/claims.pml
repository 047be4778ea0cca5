/*
 * One task, from the queue to its end (proto/PROTOCOL.md section 8; control-plane/task-run.ts). Two
 * control planes with one store each have a worker, whose stream may be lost and come back; a user may
 * cancel at any moment. Each switch puts one fault in, and spin has to find what it breaks:
 *
 *   CANCEL_RUNS   the runner starts although the task was cancelled while it was claimed
 *   DOUBLE_CLAIM  looking whether the task waits and claiming it are two steps
 *   STALE_CLAIM   a worker that comes back keeps what the control plane has given up
 *   CLOSED_CALL   a call on a claim whose stream is gone for good waits instead of failing at once
 */

#define ATTEMPTS 3
#define CUTS 2

mtype = { QUEUED, CLAIMING, RUNNING, ENDED };

/* The store. */
mtype status = QUEUED;
byte epoch, attempts, ends;

byte starts;       /* how often a runner was started */
bool cancelled;    /* ended by the user before it ran */
bool stop;         /* the user wants what runs to end */
bool over;         /* nothing can happen any more, and all was well */

/* The control plane's side of worker s, and what is on its way between the two. */
byte link[2];      /* epoch of the claim that it counts on; 0: none */
bool granted[2];   /* it knows that the worker holds it: the claim outlives its stream */
bool kept[2];      /* and still wants it */
byte asked[2], answer[2], refusal[2], release[2], call[2], result[2];

/* The worker's side. */
bool up[2] = true;
byte holds[2];     /* epoch of its claim; 0: none */
byte runs[2];      /* epoch whose program runs; 0: none */
byte cuts[2];

proctype Plane(byte s) {
  byte mine;
  do
  :: atomic { over -> break }
#ifndef DOUBLE_CLAIM
  :: atomic { status == QUEUED && up[s] && link[s] == 0 ->
       status = CLAIMING; attempts++; epoch++; mine = epoch };
#else
  :: status == QUEUED && up[s] && link[s] == 0;
     atomic { status = CLAIMING; attempts++; epoch++; mine = epoch };
#endif
     /* The claim is asked for. */
     if
     :: atomic { up[s] -> link[s] = mine; granted[s] = false; kept[s] = true; asked[s] = mine }
     :: atomic { !up[s] -> goto unclaimed }
     fi;
     if
     :: atomic { answer[s] == mine -> answer[s] = 0; granted[s] = true }
     :: atomic { refusal[s] == mine -> refusal[s] = 0; link[s] = 0; goto unclaimed }
     :: atomic { link[s] != mine -> goto unclaimed }
     fi;
     /* `running` is committed, and then the runner starts. */
#ifndef CANCEL_RUNS
     if
     :: atomic { status == CLAIMING && epoch == mine -> status = RUNNING }
     :: atomic { !(status == CLAIMING && epoch == mine) -> goto letGo }
     fi;
#else
     atomic {
       if
       :: status == CLAIMING && epoch == mine -> status = RUNNING
       :: else
       fi };
#endif
     atomic { starts++; assert(starts <= 1); assert(!cancelled) };
     /* It runs a program. A claim that is lost fails the call, in the grace it waits. */
     if
     :: atomic { up[s] && link[s] == mine -> call[s] = mine }
#ifndef CLOSED_CALL
     :: atomic { link[s] != mine -> goto letGo }
#endif
     :: atomic { stop -> goto letGo }
     fi;
     if
     :: atomic { result[s] == mine -> result[s] = 0 }
     :: link[s] != mine
     :: stop
     fi;
letGo:
     /* Released: the worker has said so, or is given up. */
     kept[s] = false;
     do
     :: atomic { link[s] != mine -> break }
     :: atomic { link[s] == mine && up[s] && release[s] == 0 -> release[s] = mine }
     od;
     if
     :: atomic { status == RUNNING && epoch == mine -> status = ENDED; ends++ }
     :: atomic { !(status == RUNNING && epoch == mine) }
     fi;
     goto next;
unclaimed:
     if
     :: atomic { status == CLAIMING && epoch == mine && attempts < ATTEMPTS -> status = QUEUED }
     :: atomic { status == CLAIMING && epoch == mine && attempts >= ATTEMPTS ->
          status = ENDED; ends++ }
     :: atomic { !(status == CLAIMING && epoch == mine) }
     fi;
next:
     mine = 0
  od
}

#define NOTHING_HELD(s) holds[s] = 0; runs[s] = 0; call[s] = 0; result[s] = 0

proctype Worker(byte s) {
  do
  :: atomic { over -> break }
  :: atomic { up[s] && asked[s] != 0 && holds[s] == 0 ->
       holds[s] = asked[s]; answer[s] = asked[s]; asked[s] = 0 }
  /* All slots are taken, or it cannot clone. */
  :: atomic { up[s] && asked[s] != 0 -> refusal[s] = asked[s]; asked[s] = 0 }
  :: atomic { up[s] && call[s] != 0 && call[s] == holds[s] -> runs[s] = call[s]; call[s] = 0 }
  :: atomic { up[s] && runs[s] != 0 -> result[s] = runs[s]; runs[s] = 0 }
  :: atomic { up[s] && release[s] != 0 -> NOTHING_HELD(s); release[s] = 0; link[s] = 0 }
  /* Its ttl is over. */
  :: atomic { !up[s] && holds[s] != 0 -> holds[s] = 0; runs[s] = 0 }
  /* It comes back, and is told what it keeps. */
  :: atomic { !up[s] -> up[s] = true;
       if
       :: holds[s] != 0 && link[s] == holds[s] && granted[s] && kept[s]
       :: else ->
            link[s] = 0;
#ifndef STALE_CLAIM
            NOTHING_HELD(s)
#endif
       fi }
  od
}

proctype Connection(byte s) {
  do
  :: atomic { over -> break }
  :: atomic { up[s] && cuts[s] < CUTS ->
       up[s] = false; cuts[s]++;
       asked[s] = 0; answer[s] = 0; refusal[s] = 0; release[s] = 0;
       if
       :: granted[s]
       :: else -> link[s] = 0
       fi }
  /* The grace is over. */
  :: atomic { !up[s] && link[s] != 0 -> link[s] = 0 }
  od
}

proctype User() {
  if
  :: skip
  :: atomic { status == QUEUED || status == CLAIMING -> status = ENDED; ends++; cancelled = true }
  :: atomic { status == RUNNING -> stop = true }
  fi
}

init {
  atomic {
    run Plane(0); run Plane(1);
    run Worker(0); run Worker(1);
    run Connection(0); run Connection(1);
    run User()
  };
  /* When nothing can happen any more. */
  timeout;
  assert(status == ENDED && ends == 1);
  assert(link[0] == 0 && link[1] == 0);
  assert(holds[0] == 0 && holds[1] == 0 && runs[0] == 0 && runs[1] == 0);
  over = true
}
