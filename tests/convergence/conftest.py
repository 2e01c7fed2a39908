# SPDX-License-Identifier: Apache-2.0
"""The rules of the engine, each with its tests. A *step* is one transaction: a check, a conclusion, a
start. It happens completely or not at all. Every test here runs on each database that is at hand.

Compared with Heat's convergence (its modules check_resource and stack): Heat's locks have neither
token nor lease, so it asks a dead engine by RPC, and fails and replaces the resource, where this
engine repeats the same operation with an unknown outcome. Heat has no ledger, no stages, no fence
and no retry of an unavailable service. It reports to each dependent in a transaction of its own,
ends a traversal at its first failure, and rolls back to the template before, whether that was
reached or not.

A node is checked
-----------------

- A node of a traversal that is no longer current is left alone. The newer traversal has its own
  node.
  tests/convergence/test_traversals.py::test_messages_of_a_superseded_traversal_do_nothing
- A message that comes too early, twice or after the end does nothing.
  tests/convergence/test_crashes.py::test_a_message_that_comes_too_early_waits_for_its_predecessors
  tests/convergence/test_crashes.py::test_a_message_that_comes_twice_is_carried_out_once
- A lock is taken by one conditional UPDATE. It requires that no process owns the lock and that
  the record has not changed since it was read. The token grows by one.
  tests/store/test_locks.py::test_of_many_that_want_one_lock_exactly_one_gets_it
  tests/store/test_locks.py::test_who_read_the_record_before_a_change_gets_no_lock
- A resource with a live owner is left alone, and so are its dependents. The deferral is stored
  for operators to see.
  tests/convergence/test_answers.py::test_a_check_that_finds_the_lock_held_reports_its_owner_and_for_how_long
- A worker defers only to a lock that outlives the transaction in which it looked. It waits for a
  release that runs at the same time, so the wake-up is not lost.
  tests/store/test_sync_points.py::test_a_deferral_that_races_with_the_release_does_not_lose_the_wake_up
- An owner is dead when its lease has ended, by the database's clock. It is not asked.
  tests/store/test_locks.py::test_a_live_owner_is_not_stolen_from
- A dead owner's lock is broken by an update with both the owner and the token that were read. A
  second worker that tries fails.
  tests/store/test_locks.py::test_of_many_thieves_exactly_one_steals
  tests/store/test_locks.py::test_a_thief_that_saw_an_earlier_owner_loses_against_the_later_one
  tests/convergence/test_crashes.py::test_a_second_slower_thief_loses
- The outcome of a dead owner's operation is *unknown*. The same operation is handed out with the
  same key, and the next worker first looks at reality.
  tests/convergence/test_crashes.py::test_a_dead_owners_operation_is_handed_out_again_under_the_same_key_as_unknown
- An operation that failed but may have taken effect keeps its key. Its outcome stays unknown to
  whatever is done to the resource next.
  tests/convergence/test_crashes.py::test_what_failed_and_may_have_taken_effect_is_repeated_under_the_same_key
  tests/convergence/test_crashes.py::test_an_unknown_outcome_is_unknown_to_the_deletion_that_follows
- A resource that is needed again during its deletion gets a replacement at once. A create-first
  one does not wait for the deletion.
  tests/convergence/test_traversals.py::test_what_is_being_deleted_is_made_anew_when_it_is_wanted_again
  tests/convergence/test_rollback.py::test_a_goal_that_flips_back_while_its_attachment_is_being_deleted_gets_a_new_one
- If a replacement turns out to be necessary only when an attribute is known, it starts a
  traversal to the same goal. The old record is condemned for that goal. Another goal may keep it.
  tests/convergence/test_traversals.py::test_an_attribute_that_changes_an_immutable_property_replaces_in_a_follow_up_traversal
  tests/convergence/test_traversals.py::test_what_one_goal_has_to_replace_is_kept_where_another_goal_wants_it_as_it_is
- A node whose stage is not open yet is held back. No stage is earlier than one that it waits for,
  so stages that are worked through in order never wait for a later one.
  tests/convergence/test_stages.py::test_a_node_of_a_stage_that_is_not_open_is_held
  tests/convergence/test_planning.py::test_no_node_is_of_an_earlier_stage_than_one_that_it_waits_for
- An open stage is never closed again. It stays open in a traversal that the engine itself starts
  next (a late replacement, a rollback).
  tests/store/test_sync_point_rows.py::test_a_stage_that_is_open_is_never_closed_again
  tests/convergence/test_stages.py::test_a_rollback_follows_what_failed_and_has_the_same_stages_open
- A node that waits after a failure is not tried before its next try is due.
  tests/convergence/test_waiting.py::test_before_the_next_try_is_due_nothing_is_handed_out
- An update knows what was last applied successfully. If its outcome may be unknown, a later
  attempt may have taken effect instead.
  tests/convergence/test_handing_out.py::test_an_update_after_one_that_failed_carries_what_was_applied_before_that
  tests/convergence/test_handing_out.py::test_an_update_after_one_of_which_nothing_is_known_says_so
- The intent is in the ledger before the operation is handed out.
  tests/store/test_record_rows.py::test_an_operation_taken_up_again_belongs_to_its_new_owner

An operation is carried out
---------------------------

- The process renews its lease after a third of its length. It uses its own clock, read before it
  asked the database.
  tests/store/test_leases.py::test_a_renewal_counts_from_before_the_database_was_asked
- Every call that changes something renews the lease first. So a lost lock is noticed before the
  call. No call begins, and no wait for its answer lasts, past its lease; an answer that arrives
  in drops is not bounded as a whole.
  tests/runtime/test_lease_guard.py::test_a_call_gets_what_is_left_and_one_that_changes_something_a_fresh_lease
  tests/runtime/test_lease_guard.py::test_no_call_starts_once_a_renewal_was_refused
- A request that changes something is recorded before it is sent, and its answer too. Until one
  without an answer can no longer take effect, no other operation on that resource is handed out,
  whatever happened to its owner or its goal: what a look shows is not final. The same operation
  continues, but only looks. Nothing that a fence asked for may hit what is made on its member
  later. If every request was answered, the next operation waits for nothing. (Also: the move
  "takes effect late" of tests/convergence/test_every_interleaving.py.)
  tests/convergence/test_handing_out.py::test_what_another_goal_wants_waits_until_the_last_request_can_have_no_effect_any_more
  tests/convergence/test_handing_out.py::test_where_nothing_was_asked_nothing_is_waited_for
  tests/workflows/test_late_effects.py
  tests/convergence/test_every_interleaving.py
- A process that was frozen past its lease changes nothing. It sends no call, except for a read
  that one of its threads was sending when it froze. Its late result is ignored. (Also: the mode
  ``freeze`` of ``make faults``.)
  tests/store/test_leases.py::test_a_holder_that_was_frozen_past_the_end_stops_by_itself
  tests/convergence/test_crashes.py::test_a_late_result_after_the_lock_was_broken_changes_nothing
- The lease of an operation that makes something on a member is not renewed after the member was
  fenced or replaced. So nothing waits for a dead server longer than one lease.
  tests/store/test_locks.py::test_no_lease_is_renewed_to_make_something_on_a_member_that_was_fenced_since
- Nothing is made anywhere before the fences of the goal have their proof. This holds for a new
  record, and for a kept one that exists nowhere yet.
  tests/convergence/test_behind_a_fence.py::test_what_a_failed_move_left_is_not_made_again_before_the_proof
  tests/convergence/test_behind_a_fence.py::test_what_was_never_made_is_not_made_before_the_proof_when_the_goal_is_given_again
- A compute host is switched off once for all groups on it. A conditional UPDATE claims it under a
  lease; the others wait, and use the proof if it is not older than their traversal and the host
  is still off. An owner that lost the claim records nothing.
  tests/store/test_host_fences.py::test_of_many_that_claim_a_host_at_once_one_gets_it
  tests/resources/fence/test_host_power.py::test_groups_that_fence_a_host_at_once_switch_it_off_once
  tests/resources/fence/test_host_power.py::test_a_process_that_lost_its_lease_records_no_proof
- What was begun on a server that was replaced since is still known to be there, even if its end
  was never reported. It is stopped and fenced there, not on the successor.
  tests/groups/test_replaced_members.py::test_a_start_without_an_answer_is_fenced_on_the_server_that_it_was_sent_to
- A server is replaced when nothing of the group is left on it. This comes after its member's
  fence and after everything that serves; one server after the other.
  tests/convergence/test_new_servers.py::test_a_replaced_member_is_free_of_the_group_whatever_the_goals_are
  tests/convergence/test_new_servers.py::test_two_are_replaced_one_after_the_other
- Nothing is made on a member whose replacement may be running. It waits for the end and goes to
  the new server.
  tests/convergence/test_new_servers.py::test_a_role_that_comes_to_a_member_waits_until_its_replacement_has_ended
- The goal names the server to replace. A repeat, or a late order, replaces nothing.
  tests/orders/test_repeated_replacements.py::test_one_that_somebody_else_replaced_meanwhile_is_only_noted
  tests/orders/test_replace.py::test_a_rollback_goes_to_a_replaced_member_as_well
- A worker that finds its lease lost gives the operation up and frees the lock, unless it was
  broken already. Nothing fails: the outcome is unknown, and the node is triggered again at once.
  tests/convergence/test_giving_up.py::test_what_is_given_up_is_free_unknown_and_triggered_again
  tests/recovery/test_advance.py::test_an_operation_that_lost_its_lease_is_given_up_and_taken_up_again
- What belongs to a member that was replaced in the middle is made again in the member's new
  epoch.
  tests/convergence/test_crashes.py::test_what_was_begun_on_a_member_that_was_replaced_since_is_made_anew_in_its_new_epoch

An operation is concluded
-------------------------

- Outcome and release are one update, guarded by owner and token. A loser's late result changes
  nothing, and the loser learns that.
  tests/store/test_locks.py::test_a_thief_and_the_owners_late_release_do_not_both_win
  tests/convergence/test_crashes.py::test_a_result_that_is_told_twice_counts_once
- The same transaction reports to every dependent. A dependent that waits for nothing more is
  ready.
  tests/store/test_sync_points.py::test_of_sixteen_predecessors_that_report_at_once_the_last_one_sees_the_node_ready
- A repeated report counts once, and returns again what is ready.
  tests/store/test_sync_points.py::test_a_report_that_comes_twice_counts_once_and_tells_again_what_is_ready
- Missing sync points mean that there is a newer traversal. Its node for this resource, as update
  or else as cleanup, is triggered with the current data.
  tests/convergence/test_traversals.py::test_the_conclusion_of_a_superseded_operation_wakes_its_node_in_the_newer_traversal
- The same happens after a failure in a superseded traversal. It fails nothing and wakes the node.
  tests/convergence/test_traversals.py::test_a_failure_of_a_superseded_operation_wakes_its_node_and_fails_nothing
- The same happens if what the operation made is no longer wanted.
  tests/convergence/test_traversals.py::test_a_superseded_creation_that_no_goal_wants_any_more_is_cleaned_up_after_it
- A transient failure (a service is unavailable) fails nothing. The lock is freed, the outcome is
  unknown, and the node is retried after 1, 2, 4, 8 and then every 10 s.
  tests/convergence/test_waiting.py::test_what_found_a_service_away_says_what_it_waits_for_and_when_it_goes_on
  tests/convergence/test_waiting.py::test_each_try_is_the_same_operation_whose_outcome_is_not_known
- A target that goes down is passed over. The operation waits like after any transient failure,
  and ``failover.advance`` starts a traversal to a goal with another member. It follows the first
  one, so the chain continues with it. The failed operation is undone before the other member gets
  the volume; if it may still take effect, the target is fenced first.
  tests/workflows/test_targets_that_die.py::test_the_next_standby_takes_over_and_the_history_says_why
  tests/workflows/test_targets_that_die.py::test_what_may_arrive_late_is_fenced_before_another_gets_the_volume
  tests/workflows/test_targets_that_die.py::test_a_sweep_chooses_where_the_process_died_before_it_did
- A target that was deleted is not waited for. ``failover.advance`` fails its node at once, unless
  another member may still take its place. A new server of the same member may, in the member's
  new epoch.
  tests/convergence/test_waiting.py::test_a_wait_for_what_cannot_come_ends_at_once
  tests/workflows/test_targets_that_die.py::test_a_deleted_target_without_another_standby_fails_at_once
  tests/workflows/test_targets_that_die.py::test_a_deleted_target_that_heat_makes_again_meanwhile_is_used
- A traversal that can go back does not wait for a target that is down.
  tests/convergence/test_returning.py::test_a_move_that_can_go_back_does_not_wait_for_a_target_that_is_down
- When the group's patience is over, the operation has failed. The patience counts from the first
  failure, of whatever kind. The time in which a try worked (60 s or more without a failure) does
  not count, unless an operator is needed at the end; the pauses always do, so failures that
  alternate end as well.
  tests/convergence/test_waiting.py::test_once_the_group_s_patience_is_over_the_operation_has_failed
  tests/convergence/test_waiting.py::test_the_time_in_which_a_try_worked_does_not_count
  tests/convergence/test_waiting.py::test_failures_with_work_between_them_come_to_an_end
- An error with a patience of its own has it for an unbroken series of such errors. It does not
  extend the group's.
  tests/convergence/test_waiting.py::test_an_error_with_a_patience_of_its_own_has_all_of_it_after_others
  tests/convergence/test_waiting.py::test_errors_that_alternate_end_with_the_patience_of_the_group
- A transient failure in a superseded traversal wakes the node in the newer one. Every failure
  does.
  tests/convergence/test_waiting.py::test_in_a_superseded_traversal_it_wakes_its_node_in_the_newer_one
- Any number of triggers of one node are harmless.
  tests/convergence/test_any_interleaving.py::test_whatever_happens_meanwhile_the_group_comes_to_rest_at_its_goal
- While no process dies and no message is lost, no sweep is needed. No wake-up is lost. (Also for
  two engines in *every* order of their steps.)
  tests/convergence/test_any_interleaving.py::test_without_losses_no_sweep_is_needed
  tests/convergence/test_every_interleaving.py
- When every root has reported, the traversal is COMPLETE. Its goal is the last COMPLETE one.
  tests/store/test_sync_points.py::test_the_traversal_has_finished_when_every_root_has_reported
- What does not depend on a failed node continues.
  tests/convergence/test_failures.py::test_a_failure_marks_the_traversal_and_independent_branches_go_on
- What failed or is blocked is reopened in its traversal when what stopped it may be over. The
  traversal keeps status, reason and time until the try succeeds. Then both follow from the nodes
  that are still stopped, and a traversal that goes on has not ended.
  tests/convergence/test_failures.py::test_a_try_that_fails_leaves_status_reason_and_time_as_they_were
  tests/convergence/test_failures.py::test_the_reason_is_the_step_that_has_not_gone_on_yet
  tests/convergence/test_failures.py::test_a_traversal_that_goes_on_has_not_ended

A goal is replaced
------------------

- A traversal starts with a swap of the current one, which names the expected one. Its graph,
  records and sync points are in the same transaction. The loser derives its goal again.
  tests/convergence/test_traversals.py::test_a_start_that_expected_another_current_traversal_loses_and_changes_nothing
  tests/store/test_sync_points.py::test_of_many_that_start_a_traversal_at_once_one_wins
- A traversal that is started again with its id is the same traversal.
  tests/convergence/test_traversals.py::test_starting_a_traversal_again_changes_nothing_and_tells_what_is_ready
  tests/convergence/test_traversals.py::test_starting_a_superseded_traversal_again_does_not_revive_it
- A newer goal may come at any moment, and may be the old one again.
  tests/workflows/test_new_goals_in_the_middle.py::test_the_newest_goal_wins_whatever_is_under_way
  tests/convergence/test_any_two_goals.py::test_from_any_goal_that_was_given_up_half_way_any_other_is_reached
- The target may die in the middle, and the group may be removed in the middle.
  tests/workflows/test_new_goals_in_the_middle.py::test_a_target_that_dies_in_the_middle_is_fenced_and_another_takes_over
  tests/workflows/test_new_goals_in_the_middle.py::test_the_newest_goal_wins_whatever_is_under_way
- What leaves the goal is removed after its dependents no longer use it, or are gone. This
  includes a dependent that is still being made. It stays while one of them cannot stop using it.
  tests/convergence/test_leaving.py::test_what_leaves_goes_in_the_order_that_its_users_need
  tests/convergence/test_leaving.py::test_what_is_being_made_upon_it_is_waited_for
  tests/convergence/test_leaving.py::test_it_stays_as_long_as_its_dependent_can_not_turn_away
  tests/convergence/test_any_plan.py::test_what_stands_is_kept_and_what_leaves_goes_in_the_order_that_its_users_need
- A delete-first dependent that stays is not made again. Exception: it waits for something that
  waits for that cleanup.
  tests/convergence/test_leaving.py::test_a_delete_first_dependent_stays_as_it_is_when_what_it_required_leaves
  tests/convergence/test_leaving.py::test_what_leaves_goes_in_the_order_that_its_users_need
  tests/convergence/test_any_plan.py::test_what_stands_is_kept_and_what_leaves_goes_in_the_order_that_its_users_need
- While a member is lost, no service waits for an update.
  tests/convergence/test_leaving.py::test_a_failover_waits_for_no_update
- What comes to a member waits for what leaves it and has the same type. So two roles that change
  places can share a volume.
  tests/convergence/test_planning.py::test_each_rule_gives_its_edges
  tests/convergence/test_changing_places.py::test_two_roles_that_change_places_keep_the_volume_that_they_share
- Of several records the complete one is kept before the failed one, and the newest before the
  older. A record that is being deleted is never kept.
  tests/convergence/test_planning.py::test_of_several_records_the_complete_one_is_kept_before_the_failed_one

Going back
----------

- ``on_failure: rollback`` and ``failover.rollback`` go to the last goal that was COMPLETE. They
  skip any number of failed and overtaken goals.
  tests/convergence/test_rollback.py::test_after_several_failures_it_is_the_last_goal_that_was_reached
  tests/convergence/test_rollback.py::test_of_overlapping_traversals_the_newest_rolls_back_past_those_it_overtook
- The engine and an order use the same function to find that goal. It is the goal that was reached
  last; or, from a goal that was reached, the last one before it that asks for something else.
  tests/convergence/test_rollback.py::test_from_a_goal_that_was_reached_it_is_the_one_before
  tests/convergence/test_rollback.py::test_from_a_goal_that_was_not_reached_it_is_the_last_one_that_was
  tests/convergence/test_rollback.py::test_a_goal_that_asks_for_the_same_is_not_the_one_before
- A failure in a superseded traversal rolls nothing back. A rollback that fails is not rolled
  back.
  tests/convergence/test_rollback.py::test_what_fails_in_a_superseded_traversal_rolls_nothing_back
  tests/convergence/test_rollback.py::test_a_rollback_that_fails_does_not_roll_back_again
- A replaced resource that still exists is brought back, not made again.
  tests/convergence/test_rollback.py::test_a_replaced_resource_that_still_exists_is_brought_back_not_made_anew
- A rollback does not change which members are lost. It lifts no fence, and gives no role to a
  lost member.
  tests/convergence/test_rollback.py::test_a_standby_that_is_lost_stays_fenced_in_a_rollback
  tests/convergence/test_rollback.py::test_nothing_is_rolled_back_where
- What a failed deletion has left is brought back in place, by its creation, with a new key. Only
  for types with ``revive``.
  tests/convergence/test_returning.py::test_what_could_not_be_stopped_is_brought_back_where_it_is_and_not_stopped_again
  tests/convergence/test_returning.py::test_what_was_stopped_without_an_answer_is_started_again
- The same holds if the deletion still ran when the way back was planned. When it fails, a
  traversal to the same goal starts that keeps the record.
  tests/convergence/test_returning.py::test_of_two_removals_that_fail_beside_each_other_neither_is_tried_again_on_the_way_back
- A planned move that fails, or would wait for an operator, returns whatever the group file says.
  The way back makes no such promise.
  tests/convergence/test_returning.py::test_whatever_fails_or_would_wait_for_a_person_takes_the_group_back
  tests/convergence/test_returning.py::test_a_way_back_that_needs_a_person_waits_for_them
  tests/convergence/test_returning.py::test_a_move_from_where_a_move_led_comes_back_there_and_promises_nothing_more
- Goals are kept, and removed by policy. What a rollback or a record needs is always kept, with
  its types.
  tests/store/test_goals.py::test_the_goal_that_a_rollback_needs_is_kept_however_old_it_is
  tests/store/test_goals.py::test_the_types_of_kept_goals_outlive_a_new_definition
"""  # noqa: E501 - the names of tests

from __future__ import annotations

import pytest

from support.databases import KINDS
from support.simulation import Simulation


@pytest.fixture(params=KINDS)
def simulation(request: pytest.FixtureRequest) -> Simulation:
    """A group in an empty store, and a world."""
    return Simulation(request.param)
