-------------------------------- MODULE Trace -------------------------------
(* SPDX-License-Identifier: Apache-2.0                                        *)
(* Whether what a real run recorded is a behaviour of the specification. Its  *)
(* records come in their order; steps that leave none (looks, requests,       *)
(* ticks, nodes with nothing to do) are found by TLC.                         *)
EXTENDS Failover
CONSTANTS
  Records,  \* what was recorded, in order
  Retried   \* resources of which the journal leaves tries out: it has their first and their last one
VARIABLE told

Changed == {i \in 1..Len(db.recs) : db'.recs[i].own # db.recs[i].own}
Resource(e, i) == LET r == db'.recs[i] IN [e |-> e, k |-> r.nm.k, x |-> r.nm.x, m |-> r.mem]
Event ==
    LET i == CHOOSE j \in Changed : TRUE
        node == LET w == db.recs[i].own IN wk[w].node
        failed == node \in DOMAIN db'.nodes /\ db'.nodes[node].st = "FAILED"
    IN  IF next' # next THEN [e |-> "traversal", act |-> db'.goal.act, lost |-> db'.goal.lost]
        ELSE IF db'.cur # db.cur THEN [e |-> "follows"]
        ELSE IF att' # att THEN [e |-> "cloud", att |-> att']
        ELSE IF Changed = {} THEN [e |-> ""]
        ELSE IF db.recs[i].own = 0 THEN Resource("started", i)
        ELSE IF db'.recs[i].tok # db.recs[i].tok THEN Resource("steal", i)
        ELSE IF db'.recs[i].st = "COMPLETE" THEN Resource("done", i)
        ELSE IF failed THEN Resource("failed", i)
        ELSE Resource("given_up", i)
Untold(e) == e.e \in {"started", "given_up"} /\ [k |-> e.k, x |-> e.x, m |-> e.m] \in Retried
TraceInit == Init /\ told = 0
TraceNext ==
    /\ Next
    /\ \/ (Event.e = "" \/ Untold(Event)) /\ told' = told
       \/ told < Len(Records) /\ Event = Records[told + 1] /\ told' = told + 1
TraceSpec == TraceInit /\ [][TraceNext]_<<vars, told>>
(* Not so as soon as all of it fits, and the run ended as it is recorded: TLC then shows how. *)
DoesNotFit == told < Len(Records) \/ db.st = "IN_PROGRESS"
=============================================================================
