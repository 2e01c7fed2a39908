------------------------------ MODULE Failover ------------------------------
(* SPDX-License-Identifier: Apache-2.0                                        *)
(* Locks, leases, tokens, sync points, the fence, epochs and requests that    *)
(* take effect late, as convergence/, store/records.py, store/leases.py,      *)
(* runtime/lease_guard.py and cloud/transport.py have them. docs/safety.md    *)
(* says what is left out.                                                     *)
(*                                                                            *)
(* One group: volumes, an application on them, a parameter of the stack, and  *)
(* the fences of lost members. One transaction of the state store is one      *)
(* step. A worker may check any node at any time. Time passes in ticks; a     *)
(* worker that is not frozen takes its next step before the next tick.        *)
EXTENDS Naturals, FiniteSets, Sequences, TLC

CONSTANTS
  MemberOrder, VolumeOrder, Workers,
  Goals,      \* the goals that are given, one after the other, at any moment:
              \* [act |-> active member, lost |-> lost members, new |-> those with a new server]
  First,      \* the member on which the group rests at the beginning; "" if it was never active
  Lease,      \* ticks: option lease
  Margin,     \* ticks: lease_margin
  CallMax,    \* ticks: http_timeout
  Late,       \* ticks: repeat_after; how long a service may hold a request
  Budget,     \* how often at most: [crash, freeze, away, fail, slow, drop, drift |-> number]
  Mistakes    \* {}: as the code is. What each mistake does is found by its name

VARIABLES
  db,     \* the state store
  wk,     \* the workers
  calls,  \* requests and commands that were sent and may still take effect, the oldest first
  att,    \* the cloud: which members have a volume
  run,    \* the guests: on which members the application runs
  off,    \* members that are proven off since they were lost
  known,  \* the newest epoch that a member's agent has heard of
  par,    \* the stack's parameter
  srv,    \* how often a member's server was replaced
  back,   \* how often a member that was lost was switched on again
  next,   \* the next goal
  left,   \* of the budget
  bad     \* what must never be and was
vars == <<db, wk, calls, att, run, off, known, par, srv, back, next, left, bad>>

Members == {MemberOrder[i] : i \in 1..Len(MemberOrder)}
Volumes == {VolumeOrder[i] : i \in 1..Len(VolumeOrder)}
Wrong(mistake) == mistake \in Mistakes

Att(v) == [k |-> "att", x |-> v]     App == [k |-> "app", x |-> ""]
Fence(m) == [k |-> "fence", x |-> m]  Par == [k |-> "par", x |-> ""]
OnMember == {"att", "app"}           \* these are replaced delete-first and revived
U(i) == <<"u", i>>                   \* the node that brings record i to the goal
C(i) == <<"c", i>>                   \* the node that removes it
Min(a, b) == IF a < b THEN a ELSE b
Max(a, b) == IF a > b THEN a ELSE b
Dec(n) == IF n = 0 THEN 0 ELSE n - 1
Use(what) == left[what] > 0 /\ left' = [left EXCEPT ![what] = @ - 1]

NoGoal == [act |-> "", lost |-> {}, new |-> {}]
NewRecord == [nm |-> Par, mem |-> "", ep |-> 0, act |-> "INIT", st |-> "COMPLETE", val |-> "",
              own |-> 0, tok |-> 0, lease |-> 0, late |-> 0, req |-> {}, cond |-> {}, gv |-> NoGoal,
              srv |-> 0]
Idle == [pc |-> "idle", rec |-> 0, tok |-> 0, verb |-> "", node |-> U(0), trav |-> 0,
         goal |-> NoGoal, ep |-> 0, back |-> <<>>, own |-> 0, quiet |-> 0, earlier |-> 0, perm |-> 0,
         answer |-> FALSE, frozen |-> FALSE]

-----------------------------------------------------------------------------
(* graph.py: which records stay, which are new, and what waits for what.      *)

Gone(r) == r.act = "DELETE" /\ r.st = "COMPLETE"
Live(d) == {i \in 1..Len(d.recs) : ~Gone(d.recs[i])}
Wanted(g) == {Att(v) : v \in Volumes} \cup {App, Par} \cup {Fence(m) : m \in g.lost}
Requires(nm) == CASE nm.k = "app" -> {Att(v) : v \in Volumes} [] nm.k = "par" -> {App} [] OTHER -> {}
MemberOf(nm, g) == IF nm.k \in OnMember THEN g.act ELSE ""
ValueOf(nm, g) == IF nm.k = "par" THEN g.act ELSE "set"
Revived(r) == r.nm.k \in OnMember /\ r.act = "DELETE" /\ r.st = "FAILED"
Olds(d, nm) == {i \in Live(d) : d.recs[i].nm = nm}
Usable(d, nm, g, i) == LET r == d.recs[i] IN
    /\ r.act # "DELETE" \/ Revived(r)
    /\ g \notin r.cond
    /\ r.mem = MemberOf(nm, g)
    /\ r.mem # "" => r.ep >= d.ep[r.mem]
    /\ ~(nm.k = "fence" /\ r.st = "COMPLETE" /\ ~Wrong("old_proof_suffices")
         /\ \E j \in Live(d) : d.recs[j].mem = nm.x)
    /\ ~(nm.k = "fence" /\ r.st = "IN_PROGRESS" /\ nm.x \notin d.goal.lost /\ ~Wrong("running_proof_suffices"))
At(x, order) == CHOOSE i \in 1..Len(order) : order[i] = x
Position(nm) == CASE nm.k = "att" -> At(nm.x, VolumeOrder) [] nm.k = "app" -> 10 [] nm.k = "par" -> 11
                  [] OTHER -> 11 + At(nm.x, MemberOrder)
Rank(r) == (IF r.act # "INIT" THEN 10 ELSE 0)
           + (CASE r.st = "COMPLETE" -> 2 [] r.st = "IN_PROGRESS" -> 1 [] OTHER -> 0)
Best(d, nm, g) ==
    LET usable == {i \in Olds(d, nm) : Usable(d, nm, g, i)}
    IN  IF usable = {} THEN 0
        ELSE CHOOSE i \in usable : \A j \in usable : Rank(d.recs[j]) < Rank(d.recs[i])
                                     \/ (Rank(d.recs[j]) = Rank(d.recs[i]) /\ j <= i)
Standing(r) == r.act = "UPDATE" \/ (r.act = "CREATE" /\ r.st = "COMPLETE")

Plan(d, g) ==
    LET first1 == UNION {Olds(d, Att(v)) \ {Best(d, Att(v), g)} : v \in Volumes}
        app0   == Best(d, App, g)
        app    == IF app0 # 0 /\ d.recs[app0].req \cap first1 # {} THEN 0 ELSE app0
        first  == first1 \cup (Olds(d, App) \ {app})          \* what goes first
        names  == Wanted(g)
        best   == [nm \in names |-> IF nm = App THEN app ELSE Best(d, nm, g)]
        new    == {nm \in names : best[nm] = 0}
        chosen == [nm \in names |-> IF best[nm] # 0 THEN best[nm]
                     ELSE Len(d.recs) + Cardinality({o \in new : Position(o) <= Position(nm)})]
        kept   == {best[nm] : nm \in names \ new}
        leave  == Live(d) \ kept
        made   == {nm \in names : nm.k \in OnMember /\ (nm \in new \/ ~Standing(d.recs[best[nm]]))}
        goFirst(nm) == nm.k \in OnMember
                       \/ \E i \in Olds(d, nm) \ {best[nm]} : d.recs[i].req \cap first # {}
        fences(which) == IF Wrong(which) THEN {} ELSE g.lost
        edges  ==
          UNION {{<<U(chosen[a]), U(chosen[b])>> : a \in Requires(b)} : b \in names}
          \cup {<<C(p[1]), C(p[2])>> : p \in {q \in leave \X leave : ~Wrong("users_ignored")
                                                                     /\ q[2] \in d.recs[q[1]].req}}
          \cup {<<U(p[1]), C(p[2])>> : p \in {q \in kept \X (leave \ first) : q[2] \in d.recs[q[1]].req}}
          \cup {IF goFirst(d.recs[i].nm) THEN <<C(i), U(chosen[d.recs[i].nm])>>
                ELSE <<U(chosen[d.recs[i].nm]), C(i)>> : i \in {j \in leave : d.recs[j].nm \in names}}
          \cup {<<C(p[1]), U(chosen[p[2]])>> : p \in {q \in (leave \cap first) \X made :
                    d.recs[q[1]].nm.k = q[2].k /\ d.recs[q[1]].mem = MemberOf(q[2], g)}}
          \cup {<<U(chosen[Fence(p[1])]), U(chosen[p[2]])>> : p \in fences("made_before_the_proof") \X made}
          \cup {<<U(chosen[Fence(d.recs[i].mem)]), C(i)>> :
                    i \in {j \in leave : d.recs[j].mem \in fences("taken_before_the_proof")}}
          \cup {<<C(p[1]), U(chosen[p[2]])>> : p \in {q \in leave \X made :
                    /\ d.recs[q[1]].nm.k = "fence" /\ d.recs[q[1]].nm.x \notin g.lost
                    /\ d.recs[q[1]].nm.x = MemberOf(q[2], g)}}
    IN  [chosen |-> chosen, new |-> new, nodes |-> {U(chosen[nm]) : nm \in names} \cup {C(i) : i \in leave},
         edges |-> edges, kept |-> kept, fenced |-> {m \in g.lost : Olds(d, Fence(m)) = {}}]

(* traversals.begin *)
Begin(d, g) ==
    LET p == Plan(d, g)
        fresh(nm) == [NewRecord EXCEPT !.nm = nm, !.mem = MemberOf(nm, g), !.gv = g,
                                       !.ep = IF nm.k \in OnMember THEN d.ep[g.act] ELSE 0]
        named(i) == CHOOSE nm \in DOMAIN p.chosen : p.chosen[nm] = i
    IN  [d EXCEPT !.cur = @ + 1, !.goal = g, !.st = "IN_PROGRESS",
                  !.recs = [i \in 1..(Len(@) + Cardinality(p.new)) |->
                              IF i <= Len(@) THEN @[i] ELSE fresh(named(i))],
                  !.wants = [i \in {p.chosen[nm] : nm \in DOMAIN p.chosen} |->
                               {p.chosen[r] : r \in Requires(named(i))}],
                  !.nodes = [x \in p.nodes |->
                               [st |-> "WAITING", rem |-> Cardinality({e \in p.edges : e[2] = x})]],
                  !.edges = p.edges,
                  !.ep = [m \in Members |-> IF m \in p.fenced /\ ~Wrong("epoch_not_raised") THEN @[m] + 1 ELSE @[m]]]

(* sync_points.report and traversals.complete *)
Report(d, x) ==
    LET nodes == [y \in DOMAIN d.nodes |->
                    IF y = x THEN [d.nodes[y] EXCEPT !.st = "DONE"]
                    ELSE IF <<x, y>> \notin d.edges THEN d.nodes[y]
                    ELSE [d.nodes[y] EXCEPT !.rem = IF Wrong("first_report_suffices") THEN 0 ELSE @ - 1]]
    IN  [d EXCEPT !.nodes = nodes,
                  !.st = IF \A y \in DOMAIN nodes : nodes[y].st = "DONE" THEN "COMPLETE" ELSE @]
IsReady(d, x) == d.nodes[x].st = "WAITING" /\ d.nodes[x].rem = 0

-----------------------------------------------------------------------------
(* decide.py and check.py                                                     *)

Decide(d, x) ==
    LET r == d.recs[x[2]] IN
    IF x[1] = "c" THEN (IF Gone(r) \/ r.act = "INIT" \/ r.nm.k \notin OnMember THEN "none" ELSE "DELETE")
    ELSE CASE r.mem # "" /\ r.ep < d.ep[r.mem]         -> "replace"
           [] r.act = "DELETE" /\ ~Revived(r)          -> "replace"
           [] r.act \in {"INIT", "DELETE"}             -> "CREATE"
           [] r.act = "CREATE" /\ r.st # "COMPLETE"    -> "CREATE"
           [] r.st # "COMPLETE"                        -> "UPDATE"
           [] r.val # ValueOf(r.nm, d.goal)            -> "UPDATE"
           [] OTHER                                    -> "none"

(* check._concerns: whether a request of record u may change what an operation on r is about. *)
Concerns(u, r, verb) ==
    IF r.nm.k = "fence" THEN FALSE
    ELSE \/ u.nm = r.nm
         \/ r.mem = "" /\ u.mem = "" /\ u.nm.k # "fence"
         \/ r.mem # "" /\ verb # "DELETE" /\ u.nm = Fence(r.mem)
Continues(r, verb, value) == r.act = verb /\ r.val = value
Unsettled(d, i, verb, value) ==
    {j \in 1..Len(d.recs) : /\ d.recs[j].late > 0 /\ Concerns(d.recs[j], d.recs[i], verb)
                            /\ ~(j = i /\ Continues(d.recs[i], verb, value))}

Check(w) == \E x \in {y \in DOMAIN db.nodes : IsReady(db, y)} :
    LET i == x[2]
        r == db.recs[i]
        verb == Decide(db, x)
        value == IF x[1] = "c" THEN r.val ELSE ValueOf(r.nm, db.goal)
    IN
    /\ wk[w].pc = "idle"
    /\ UNCHANGED <<calls, att, run, off, known, par, srv, back, next, left, bad>>
    /\ IF r.own # 0 THEN                                   \* break_dead_lock, once its lease is over
         /\ (r.lease = 0 /\ ~Wrong("dead_lock_kept")) \/ Wrong("live_lock_broken")
         /\ db' = [db EXCEPT !.recs[i] = [@ EXCEPT !.own = 0, !.tok = @ + 1, !.lease = 0, !.st = "FAILED",
                                            !.late = IF Wrong("forgotten_when_broken") THEN 0 ELSE @]]
         /\ UNCHANGED wk
       ELSE CASE verb = "none" ->
              /\ db' = Report([db EXCEPT !.recs[i] =
                         IF x[1] = "c" THEN [@ EXCEPT !.gv = db.goal, !.act = "DELETE", !.st = "COMPLETE"]
                         ELSE [@ EXCEPT !.gv = db.goal, !.req = db.wants[i]]], x)
              /\ UNCHANGED wk
         [] verb = "replace" ->
              db' = Begin([db EXCEPT !.recs[i].cond = @ \cup {db.goal}], db.goal) /\ UNCHANGED wk
         [] verb = "DELETE" /\ Revived(r) /\ i \in Plan(db, db.goal).kept ->
              db' = Begin(db, db.goal) /\ UNCHANGED wk
         [] OTHER ->
              /\ Unsettled(db, i, verb, value) = {} \/ Wrong("requests_not_waited_for")
              /\ db' = [db EXCEPT !.recs[i] = [@ EXCEPT
                          !.act = verb, !.st = "IN_PROGRESS", !.own = w, !.tok = @ + 1, !.lease = Lease,
                          !.val = value, !.srv = IF x[1] = "c" \/ r.mem = "" THEN @ ELSE srv[r.mem],
                          !.req = IF x[1] = "c" THEN @ ELSE @ \cup db.wants[i]]]
              /\ wk' = [wk EXCEPT ![w] = [Idle EXCEPT !.pc = "look", !.rec = i, !.tok = r.tok + 1,
                          !.verb = verb, !.node = x, !.trav = db.cur, !.goal = db.goal, !.own = Lease,
                          !.ep = IF r.mem = "" THEN IF r.nm.k = "fence" THEN db.ep[r.nm.x] ELSE 0
                                 ELSE db.ep[r.mem],
                          !.back = back, !.quiet = r.late, !.earlier = r.late]]

-----------------------------------------------------------------------------
(* An operation: look, ask for permission, send, hear the answer, conclude.   *)

Record(w) == db.recs[wk[w].rec]
Mine(w) == Record(w).own = w /\ Record(w).tok = wk[w].tok
Deposed(r) == r.mem # "" /\ db.ep[r.mem] > r.ep /\ r.act # "DELETE"
Awake(w, pc) == wk[w].pc = pc /\ ~wk[w].frozen
SameServer(r) == r.nm.k \notin OnMember \/ r.srv = srv[r.mem]
Logged(r) == r.nm.k # "app"           \* an agent knows its commands by their ids and has them in order
Proven(w) == Record(w).mem \in (wk[w].goal.lost \cap off)
Seen(w) == LET r == Record(w) IN      \* what the operation is for can be seen
    CASE r.nm.k = "att"   -> (SameServer(r) /\ r.mem \in att[r.nm.x]) = (wk[w].verb # "DELETE")
      [] r.nm.k = "app"   -> wk[w].answer \/ (wk[w].verb = "DELETE" /\ (Proven(w) \/ ~SameServer(r)))
      [] r.nm.k = "fence" -> r.nm.x \in off
      [] OTHER            -> par = wk[w].goal.act

(* A look, and LeaseGuard.ask if a request follows: the lease is renewed and the request recorded. *)
Look(w) ==
    LET i == wk[w].rec
        r == Record(w)
        renewed == Mine(w) /\ r.lease > 0 /\ ~Deposed(r) /\ wk[w].own > 0
        settled == wk[w].verb # "DELETE" \/ wk[w].earlier = 0
        go(pc) == wk' = [wk EXCEPT ![w].pc = pc] /\ UNCHANGED db
    IN
    /\ Awake(w, "look")
    /\ ~(r.nm.k = "app" /\ r.mem \in off \ wk[w].goal.lost)             \* its agent is not heard
    /\ UNCHANGED <<calls, att, run, off, known, par, srv, back, next, left, bad>>
    /\ IF wk[w].own <= Margin /\ ~Wrong("lease_unchecked") THEN go("lost")
       ELSE IF Seen(w) THEN settled /\ go("end")
       ELSE IF ~SameServer(r) THEN go("lost")
       ELSE /\ wk[w].quiet = 0
            /\ IF renewed \/ Wrong("lease_unchecked")
               THEN /\ db' = [db EXCEPT !.recs[i] = IF ~renewed THEN @ ELSE
                                [@ EXCEPT !.lease = Lease,
                                          !.late = IF ~Logged(r) \/ Wrong("requests_unrecorded") THEN @
                                                   ELSE CallMax + Late]]
                    /\ wk' = [wk EXCEPT ![w] = [@ EXCEPT !.pc = "ask", !.own = Lease,
                                !.perm = IF Wrong("sent_long_after_it_was_recorded") THEN Lease - Margin
                                         ELSE Min(Lease - Margin, CallMax)]]
               ELSE go("lost")

(* The transport asks its clock again right before the bytes leave. *)
Send(w) ==
    LET r == Record(w)
        lasts == Min(wk[w].perm, CallMax)
        call(ttl) == [w |-> w, rec |-> wk[w].rec, tok |-> wk[w].tok, verb |-> wk[w].verb, ep |-> wk[w].ep,
                      srv |-> IF r.nm.k = "fence" THEN srv[r.nm.x] ELSE r.srv, val |-> wk[w].goal.act, lost |-> wk[w].goal.lost,
                      back |-> wk[w].back, ttl |-> ttl]
    IN
    /\ Awake(w, "ask")
    /\ UNCHANGED <<db, att, run, off, known, par, srv, back, next>>
    /\ IF wk[w].perm > 0 \/ Wrong("lease_unchecked")
       THEN /\ wk' = [wk EXCEPT ![w] = [@ EXCEPT !.pc = "sent", !.perm = lasts]]
            /\ bad' = IF Mine(w) THEN bad ELSE bad \cup {"sent under a lost lock"}
            /\ \/ calls' = Append(calls, call(Max(1, lasts))) /\ UNCHANGED left
               \/ Late > 0 /\ calls' = Append(calls, call(lasts + Late)) /\ Use("slow")
       ELSE wk' = [wk EXCEPT ![w].pc = "lost"] /\ UNCHANGED <<calls, left, bad>>

Unheard(w) == [n \in 1..Len(calls) |-> IF calls[n].w = w THEN [calls[n] EXCEPT !.w = 0] ELSE calls[n]]
(* The answer, or the end of the call. What was answered is settled in the store. *)
Hear(w) ==
    /\ Awake(w, "sent") /\ (wk[w].answer \/ wk[w].perm = 0)
    /\ UNCHANGED <<att, run, off, known, par, srv, back, next, left, bad>>
    /\ calls' = Unheard(w)
    /\ wk' = [wk EXCEPT ![w].pc = IF Logged(Record(w)) \/ wk[w].answer THEN "look" ELSE "lost",
                        ![w].answer = @ /\ ~Logged(Record(w)),
                        ![w].quiet = IF wk[w].answer THEN 0 ELSE Late]
    /\ db' = IF wk[w].answer /\ Mine(w) /\ Logged(Record(w)) THEN [db EXCEPT !.recs[wk[w].rec].late = wk[w].earlier]
             ELSE db

Freed(w, st) == [db EXCEPT !.recs[wk[w].rec] = [@ EXCEPT !.own = 0, !.lease = 0, !.st = st]]
Conclude(w) ==
    LET i == wk[w].rec
        current == wk[w].trav = db.cur \/ Wrong("superseded_reports")
        done == [Freed(w, "COMPLETE") EXCEPT !.recs[i].gv = wk[w].goal,
                   !.recs[i].late = IF db.recs[i].nm.k = "fence" THEN @ ELSE 0,
                   !.recs[i].req = IF wk[w].trav = db.cur /\ wk[w].node[1] = "u" THEN db.wants[i] ELSE @]
    IN
    /\ Awake(w, "end")
    /\ UNCHANGED <<calls, att, run, off, known, par, srv, back, next, left, bad>>
    /\ wk' = [wk EXCEPT ![w] = Idle]
    /\ db' = IF ~Mine(w) /\ ~Wrong("old_token_accepted") THEN db
             ELSE IF current THEN Report(done, wk[w].node) ELSE done

(* The outcome is not known: the lease is lost, a service is away, the process stops. *)
GiveUp(w) ==
    /\ calls' = Unheard(w) /\ wk' = [wk EXCEPT ![w] = Idle]
    /\ db' = IF Mine(w) THEN Freed(w, "FAILED") ELSE db
    /\ UNCHANGED <<att, run, off, known, par, srv, back, next, bad>>
Abandon(w) == Awake(w, "lost") /\ GiveUp(w) /\ UNCHANGED left
Away(w) == (Awake(w, "look") \/ Awake(w, "ask")) /\ GiveUp(w) /\ Use("away")

(* It has failed for good: so have the node and the traversal. *)
Fail(w) ==
    /\ Awake(w, "look") /\ Use("fail")
    /\ UNCHANGED <<calls, att, run, off, known, par, srv, back, next, bad>>
    /\ wk' = [wk EXCEPT ![w] = Idle]
    /\ db' = IF ~Mine(w) THEN db
             ELSE IF wk[w].trav # db.cur THEN Freed(w, "FAILED")
             ELSE [Freed(w, "FAILED") EXCEPT !.nodes[wk[w].node].st = "FAILED", !.st = "FAILED"]

(* An operator or a sweep has it tried again. *)
Reopen == \E x \in {y \in DOMAIN db.nodes : db.nodes[y].st = "FAILED"} :
    /\ db' = [db EXCEPT !.nodes[x].st = "WAITING", !.st = "IN_PROGRESS"]
    /\ UNCHANGED <<wk, calls, att, run, off, known, par, srv, back, next, left, bad>>

Crash(w) ==
    /\ wk[w].pc # "idle" /\ Use("crash")
    /\ wk' = [wk EXCEPT ![w] = Idle] /\ calls' = Unheard(w)
    /\ UNCHANGED <<db, att, run, off, known, par, srv, back, next, bad>>
Freeze(w) ==
    /\ wk[w].pc \in {"look", "ask", "sent", "end"} /\ ~wk[w].frozen /\ Use("freeze")
    /\ wk' = [wk EXCEPT ![w].frozen = TRUE]
    /\ UNCHANGED <<db, calls, att, run, off, known, par, srv, back, next, bad>>
Thaw(w) ==
    /\ wk[w].frozen /\ wk' = [wk EXCEPT ![w].frozen = FALSE]
    /\ UNCHANGED <<db, calls, att, run, off, known, par, srv, back, next, left, bad>>

-----------------------------------------------------------------------------
(* The world.                                                                 *)

(* A request takes effect. Commands to one agent do so in the order in which they were sent, and not
   on a member that is off, nor if the agent knows a newer epoch. *)
Effect == \E n \in 1..Len(calls) :
    LET c == calls[n]
        r == db.recs[c.rec]
        del == c.verb = "DELETE"
        here == CASE r.nm.k = "par" -> TRUE [] r.nm.k = "fence" -> c.srv = srv[r.nm.x]
                  [] OTHER -> c.srv = srv[r.mem]
        heard == here /\ (r.nm.k = "app" => r.mem \notin off /\ c.ep >= known[r.mem])
        lost == {m \in c.lost \cap db.goal.lost : c.back[m] = back[m]}  \* else its goal is over
        waited == ~Logged(r) \/ (r.own # 0 /\ r.tok = c.tok) \/ r.late > 0
        wrong == IF ~heard THEN {} ELSE
          (IF waited THEN {} ELSE {"an effect that nothing waits for"})
          \cup (IF r.mem # "" /\ del /\ r.mem \in lost /\ r.mem \notin off THEN {"taken before the proof"} ELSE {})
          \cup (IF r.mem # "" /\ ~del /\ ~(lost \subseteq off) THEN {"made before the proof"} ELSE {})
          \cup (IF r.nm.k = "app" /\ ~del /\ \E v \in Volumes : r.mem \notin att[v]
                THEN {"started without its volumes"} ELSE {})
          \cup (IF r.nm.k = "att" /\ del /\ r.mem \in run THEN {"taken from a running application"} ELSE {})
    IN
    /\ r.nm.k = "app" => \A k \in 1..(n - 1) :
         db.recs[calls[k].rec].nm.k = "app" => db.recs[calls[k].rec].mem # r.mem
    /\ calls' = [k \in 1..(Len(calls) - 1) |-> IF k < n THEN calls[k] ELSE calls[k + 1]]
    /\ bad' = bad \cup wrong
    /\ wk' = IF c.w = 0 \/ ~heard THEN wk ELSE [wk EXCEPT ![c.w].answer = TRUE]
    /\ att' = IF r.nm.k = "att" /\ heard THEN [att EXCEPT ![r.nm.x] = IF del THEN @ \ {r.mem} ELSE @ \cup {r.mem}]
              ELSE att
    /\ run' = IF ~heard THEN run
              ELSE IF r.nm.k = "fence" THEN run \ {r.nm.x}
              ELSE IF r.nm.k # "app" THEN run ELSE IF del THEN run \ {r.mem} ELSE run \cup {r.mem}
    /\ off' = IF r.nm.k = "fence" /\ here THEN off \cup {r.nm.x} ELSE off
    /\ known' = IF r.nm.k = "fence" /\ here THEN [known EXCEPT ![r.nm.x] = Max(@, c.ep)]
                ELSE IF r.nm.k = "app" /\ here THEN [known EXCEPT ![r.mem] = Max(@, c.ep)] ELSE known
    /\ par' = IF r.nm.k = "par" THEN c.val ELSE par
    /\ UNCHANGED <<db, srv, back, next, left>>

(* Engine.start, by an alarm or an operator. Who is no longer lost was switched on. A member with a
   new server has a new epoch (groups.record_members), and nothing is on it. *)
Start ==
    /\ next <= Len(Goals) /\ next' = next + 1
    /\ LET g == Goals[next] IN
       /\ db' = Begin([db EXCEPT !.ep = [m \in Members |-> IF m \in g.new THEN @[m] + 1 ELSE @[m]]], g)
       /\ srv' = [m \in Members |-> IF m \in g.new THEN srv[m] + 1 ELSE srv[m]]
       /\ known' = [m \in Members |-> IF m \in g.new THEN 0 ELSE known[m]]
       /\ att' = [v \in Volumes |-> att[v] \ g.new]
       /\ run' = run \ g.new
       /\ off' = (off \cap g.lost) \ g.new
       /\ back' = [m \in Members |-> IF m \in db.goal.lost \ g.lost THEN back[m] + 1 ELSE back[m]]
    /\ UNCHANGED <<wk, calls, par, left, bad>>

(* What serves has ended by itself, or the stack was changed by hand: a look finds it, and the same goal
   is given again (recovery/observe.py), also if it had failed before. *)
Repair == \E kinds \in {{"app"}, {"par"}, {"app", "par"}} :
    LET found(r) == r.nm.k \in kinds /\ r.st = "COMPLETE" /\ r.act \in {"CREATE", "UPDATE"} IN
    /\ db.st \in {"COMPLETE", "FAILED"} /\ db.goal # NoGoal
    /\ Use("drift")
    /\ db' = Begin([db EXCEPT !.recs = [i \in 1..Len(@) |-> IF found(@[i])
                      THEN [@[i] EXCEPT !.act = "UPDATE", !.st = "FAILED"] ELSE @[i]]], db.goal)
    /\ run' = IF "app" \in kinds THEN run \ {db.goal.act} ELSE run
    /\ par' = IF "par" \in kinds THEN "" ELSE par
    /\ UNCHANGED <<wk, calls, att, off, known, srv, back, next, bad>>

(* A late request has stopped a server that is wanted: a person starts it. *)
SwitchOn == \E m \in off \ db.goal.lost :
    /\ off' = off \ {m}
    /\ UNCHANGED <<db, wk, calls, att, run, known, par, srv, back, next, left, bad>>

(* A process that lives has renewed its leases. What comes to its end without an effect was dropped. *)
Tick ==
    LET keeps(w) == /\ wk[w].pc \notin {"idle", "lost"} /\ ~wk[w].frozen /\ wk[w].own > 0
                    /\ Mine(w) /\ Record(w).lease > 0 /\ ~Deposed(Record(w))
        waits(w) == \/ wk[w].pc = "idle" \/ wk[w].frozen
                    \/ wk[w].pc = "sent" /\ ~wk[w].answer /\ wk[w].perm > 0
                    \/ wk[w].pc = "look" /\ (wk[w].quiet > 0 \/ wk[w].earlier > 0) /\ wk[w].own > Margin
        dropped == \E n \in 1..Len(calls) : calls[n].ttl = 1
        staying == SelectSeq(calls, LAMBDA c : c.ttl > 1)
        held(i) == \E w \in Workers : wk[w].rec = i /\ keeps(w)
    IN
    /\ calls # <<>> \/ \E i \in 1..Len(db.recs) : db.recs[i].own # 0 \/ db.recs[i].late > 0
    /\ \A w \in Workers : waits(w)
    /\ IF dropped THEN Use("drop") ELSE UNCHANGED left
    /\ calls' = [n \in 1..Len(staying) |-> [staying[n] EXCEPT !.ttl = @ - 1]]
    /\ db' = [db EXCEPT !.recs = [i \in 1..Len(@) |->
                IF @[i].lease = 0 /\ @[i].late = 0 THEN @[i]
                ELSE [@[i] EXCEPT !.lease = IF held(i) THEN Lease ELSE Dec(@), !.late = Dec(@)]]]
    /\ wk' = [w \in Workers |-> IF wk[w].pc = "idle" THEN wk[w] ELSE
                [wk[w] EXCEPT !.own = IF keeps(w) THEN Lease ELSE Dec(@), !.quiet = Dec(@),
                              !.earlier = Dec(@), !.perm = Dec(@)]]
    /\ UNCHANGED <<att, run, off, known, par, srv, back, next, bad>>

-----------------------------------------------------------------------------
Resting == [act |-> First, lost |-> {}, new |-> {}]
Rested ==
    LET vols == [i \in 1..Len(VolumeOrder) |-> [nm |-> Att(VolumeOrder[i]), mem |-> First, req |-> {}]]
        n == Len(VolumeOrder)
        all == vols \o <<[nm |-> App, mem |-> First, req |-> 1..n], [nm |-> Par, mem |-> "", req |-> {n + 1}]>>
    IN  [i \in 1..(n + 2) |-> [NewRecord EXCEPT !.nm = all[i].nm, !.mem = all[i].mem, !.req = all[i].req,
            !.act = "CREATE", !.tok = 1, !.gv = Resting, !.val = ValueOf(all[i].nm, Resting)]]
InitBut(goal, budget) ==
    /\ db = [cur |-> 0, goal |-> IF First = "" THEN NoGoal ELSE Resting, st |-> "COMPLETE",
             nodes |-> <<>>, edges |-> {}, wants |-> <<>>, ep |-> [m \in Members |-> 0],
             recs |-> IF First = "" THEN <<>> ELSE Rested]
    /\ att = [v \in Volumes |-> IF First = "" THEN {} ELSE {First}]
    /\ run = (IF First = "" THEN {} ELSE {First})
    /\ par = First /\ off = {} /\ calls = <<>>
    /\ known = [m \in Members |-> 0] /\ srv = [m \in Members |-> 0] /\ back = [m \in Members |-> 0]
    /\ wk = [w \in Workers |-> Idle] /\ next = goal /\ left = budget /\ bad = {}
Init == InitBut(1, Budget)

Step(w) == Look(w) \/ Send(w) \/ Hear(w) \/ Conclude(w) \/ Abandon(w)
Next == \/ Start \/ Repair \/ Reopen \/ SwitchOn \/ Effect \/ Tick
        \/ \E w \in Workers : Check(w) \/ Step(w) \/ Away(w) \/ Fail(w) \/ Crash(w) \/ Freeze(w) \/ Thaw(w)
Spec == Init /\ [][Next]_vars
FairSpec == Spec /\ WF_vars(Effect) /\ WF_vars(Tick) /\ WF_vars(Start) /\ WF_vars(SwitchOn)
                 /\ \A w \in Workers : WF_vars(Check(w)) /\ WF_vars(Step(w)) /\ WF_vars(Thaw(w))

-----------------------------------------------------------------------------
(* The promises; safety.md numbers them.                                      *)

OneHolder == \A v \in Volumes : Cardinality(att[v]) <= 1
OneRuns == Cardinality(run) <= 1
NothingBad == bad = {}
(* A worker that counts on its lease has the lock. *)
LeaseIsTrue == \A w \in Workers : wk[w].pc # "idle" /\ wk[w].own > 0 => Mine(w)
(* A sync point counts those that have not reported. *)
CountsAreTrue == \A x \in DOMAIN db.nodes : db.nodes[x].rem =
    Cardinality({e \in db.edges : e[2] = x /\ db.nodes[e[1]].st # "DONE"})
(* At rest the world is as the goal wants it. *)
Reached == db.st = "COMPLETE" /\ (First # "" \/ db.cur > 0) =>
    /\ \A v \in Volumes : att[v] = {db.goal.act}
    /\ run = {db.goal.act} /\ par = db.goal.act /\ db.goal.lost \subseteq off
    /\ \A i \in Live(db) : db.recs[i].own = 0 /\ db.recs[i].st = "COMPLETE" /\ db.recs[i].gv = db.goal
    /\ {db.recs[i].nm : i \in Live(db)} = Wanted(db.goal)
    /\ Cardinality(Live(db)) = Cardinality(Wanted(db.goal))
(* No traversal follows another one without end. *)
FewTraversals == db.cur <= 3 * Len(Goals) + 3
FewTries == \A i \in 1..Len(db.recs) : db.recs[i].tok <= 12
(* Once faults are used up, every goal is reached, or has failed. *)
ComesToRest == <>[](db.st # "IN_PROGRESS")
Symmetry == Permutations(Workers)
=============================================================================
