-------------------------------- MODULE Trace -------------------------------
(* SPDX-License-Identifier: Apache-2.0                                        *)
(* Whether what real runs recorded are behaviours of the specification. The   *)
(* records of a run come in their order; steps that leave none (looks,        *)
(* requests, ticks, nodes with nothing to do) are found by TLC.               *)
EXTENDS Failover
CONSTANTS
  Runs      \* each with its `records`; the number of its first goal, `goal`; its `budget`; and
            \* `retried`: resources of which the journal leaves tries out, but the first and the last
VARIABLES
  which,    \* which of the runs it is
  told      \* how many of its records there were

Changed == {i \in 1..Len(db.recs) : db'.recs[i].own # db.recs[i].own}
Resource(e, i) == LET r == db'.recs[i] IN [e |-> e, k |-> r.nm.k, x |-> r.nm.x, m |-> r.mem]
Event ==
    LET i == CHOOSE j \in Changed : TRUE
    IN  IF next' # next THEN [e |-> "traversal", act |-> db'.goal.act, lost |-> db'.goal.lost]
        ELSE IF left'.drift # left.drift THEN [e |-> "repair"]
        ELSE IF db'.cur # db.cur THEN [e |-> "follows"]
        ELSE IF att' # att THEN [e |-> "cloud", att |-> att']
        ELSE IF Changed = {} THEN [e |-> ""]
        ELSE IF db.recs[i].own = 0 THEN Resource("started", i)
        ELSE IF db'.recs[i].tok # db.recs[i].tok THEN Resource("steal", i)
        ELSE IF db'.recs[i].st = "COMPLETE" THEN Resource("done", i)
        ELSE IF left'.fail # left.fail THEN Resource("failed", i)
        ELSE Resource("given_up", i)
Untold(e) == /\ e.e \in {"started", "given_up"}
             /\ [k |-> e.k, x |-> e.x, m |-> e.m] \in Runs[which].retried
TraceInit ==
    /\ which \in 1..Len(Runs) /\ told = 0
    /\ InitBut(Runs[which].goal, Runs[which].budget)
TraceNext ==
    /\ Next /\ UNCHANGED which
    /\ \/ (Event.e = "" \/ Untold(Event)) /\ told' = told
       \/ /\ told < Len(Runs[which].records)
          /\ Event = Runs[which].records[told + 1] /\ told' = told + 1
TraceSpec == TraceInit /\ [][TraceNext]_<<vars, which, told>>
(* All of it fits, and the run ended as it is recorded. TLC says so, and how far it came in each. *)
Fits == told = Len(Runs[which].records) /\ db.st # "IN_PROGRESS"
Far == IF Fits THEN told + 2 ELSE told + 1
ASSUME \A n \in 1..Len(Runs) : TLCSet(n, 0)
Sought ==                          \* a run that fits is not sought further
    /\ Far <= TLCGet(which) \/ (TLCSet(which, Far) /\ PrintT(<<which, told, Fits>>))
    /\ TLCGet(which) < Len(Runs[which].records) + 2
=============================================================================
