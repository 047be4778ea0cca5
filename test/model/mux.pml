/*
 * One server-streaming call of the mux (proto/PROTOCOL.md sections 5 and 6) over a stream that may be
 * lost at any time: a caller that reads, leaves or asks to cancel; a callee whose handler makes items
 * while it has credit. Each switch puts one fault in, and spin has to find what it breaks:
 *
 *   CLOSED_CALL  a call on a stream that is over waits instead of failing at once
 *   LEFT_END     the end of a call that the caller has left is dropped: its id is never free again
 *   LOST_ABORT   the loss of the stream does not reach the handler
 *   TWO_ENDS     a cancel is answered although the end has been sent
 *   EARLY_CANCEL a cancel may overtake its REQUEST, and is then ignored
 *   NO_GRANT     the reader does not give back credit
 */

#define ITEMS 3
#define CREDIT 2

mtype = { REQUEST, ITEM, END, FAILED, CANCEL, GRANT };

chan there = [4] of { mtype };
chan back = [4] of { mtype };

bool lost;         /* the stream is over, for both */
bool settled;      /* the maker of the call has heard how it ended */
bool freed;        /* its id can be used again */
bool hasRead;      /* the reader got a good end */
byte taken;        /* items that the reader got */
bool running;      /* the handler has not cleaned up */
byte ends;         /* ends that the callee has sent */
bool callerOver, calleeOver;

#define SEND(lane, what) if :: lost :: !lost && nfull(lane) -> lane!what fi

active proctype Connection() {
  if
  :: skip
  :: lost = true
  fi
}

active proctype Caller() {
  bool left = false, cancelled = false, patient = false;
  if
  :: patient = true /* wants all of it: nothing but the callee ends the call */
  :: skip
  fi;
  /* The REQUEST. */
#ifndef CLOSED_CALL
  if
  :: atomic { lost -> settled = true; freed = true; goto over }
  :: atomic { !lost && nfull(there) -> there!REQUEST }
  fi;
#else
  SEND(there, REQUEST);
  if
  :: lost && empty(back) -> false /* waits for an answer */
  :: !lost || nempty(back)
  fi;
#endif
wait:
  do
  :: atomic { back?ITEM ->
       if
       :: left
       :: else -> taken++
       fi };
#ifndef NO_GRANT
     if
     :: left
     :: else -> SEND(there, GRANT)
     fi
#endif
  :: atomic { back?END ->
#ifdef LEFT_END
       if
       :: left -> goto wait
       :: else
       fi;
#endif
       hasRead = !left; settled = true; freed = true; goto over }
  :: atomic { back?FAILED -> settled = true; freed = true; goto over }
  :: atomic { !patient && !left && !cancelled -> left = true; settled = true };   /* its signal aborts */
     cancelled = true;
     SEND(there, CANCEL)
  :: atomic { !patient && !cancelled -> cancelled = true };                       /* it asks, and reads on */
     SEND(there, CANCEL)
  :: atomic { lost && empty(back) -> settled = true; freed = true; goto over }
  od;
over:
  callerOver = true
}

active proctype Callee() {
  byte credit = CREDIT, made = 0;
  bool aborted = false;
  do
  :: atomic { !running && ends == 0 && there?[REQUEST] -> there?REQUEST; running = true }
#ifdef EARLY_CANCEL
  :: atomic { !running && ends == 0 && there??[CANCEL] -> there??CANCEL }
#endif
  :: atomic { there?[CANCEL] -> there?CANCEL ->
       if
       :: running -> aborted = true
#ifdef TWO_ENDS
       :: !running && ends > 0 && nfull(back) -> back!FAILED; ends++
#endif
       :: else
       fi }
  :: atomic { there?[GRANT] -> there?GRANT; credit++ }
#ifndef LOST_ABORT
  :: atomic { lost && running && !aborted -> aborted = true }
#endif
  :: atomic { running && !aborted && !lost && made < ITEMS && credit > 0 && nfull(back) ->
       made++; credit--; back!ITEM }
  :: atomic { running && !aborted && !lost && made == ITEMS && nfull(back) ->
       running = false; back!END; ends++ }
  :: atomic { running && aborted && !lost && nfull(back) -> running = false; back!FAILED; ends++ }
  :: atomic { running && aborted && lost -> running = false }
  :: atomic { lost && !running -> break }
  :: atomic { !running && ends > 0 && callerOver && empty(there) -> break }
  od;
  calleeOver = true
}

active proctype Judge() {
  atomic { ends > 1 || (hasRead && taken < ITEMS) || (callerOver && calleeOver) };
  assert(ends <= 1);
  assert(!hasRead || taken == ITEMS);
  assert(settled && freed && !running)
}
