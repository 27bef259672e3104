//! What the proposal of queues leaves open: one test for each of its gaps, with members in each
//! other's memory, over UDP and over libfabric.
//!
//! | gap | left open | test |
//! |---|---|---|
//! | 1 | shared queues and thread levels | `gap_01__shared_queues_take_pushes_of_four_threads_at_once` |
//! | 2 | destruction while the queue is used | `gap_02__a_queue_with_outstanding_elements_stays` |
//! | 3 | other atomics, strides | `gap_03__all_atomics_and_strides_have_operations` |
//! | 4 | flushes that do not wait | `gap_04__a_flush_can_be_asked_about_later_and_end_with_a_signal` |
//! | 5 | types of operations | `gap_05__an_operation_that_a_type_has_not_writes_nothing` |
//! | 6 | errors of a flush of all | `gap_06__all_members_return_the_same_of_a_flush` |
//! | 7 | whether progress needs others | `gap_07__progress_of_one_pe_needs_no_other` |
//! | 8 | how long the source is used | `gap_08__the_source_may_change_behind_a_push` |
//! | 9 | order | `gap_09__fences_order_and_data_come_out_in_order` |
//! | 10 | quiet, fence and barrier | `gap_10__a_barrier_completes_queues_of_any_class` |
//! | 11 | full queues | `gap_11__a_full_queue_refuses_whole_pushes_without_effect` |
//! | 12 | the unit of the time-out | `gap_12__a_time_out_is_in_seconds_and_may_be_infinite` |
//! | 13 | the third type of queues | `gap_13__a_qos_queue_never_gathers` |
//! | 14 | configurations of zeros | `gap_14__zeros_ask_for_no_class` |
//! | 15 | gets | `gap_15__a_get_has_its_values_behind_a_flush` |
//! | 16 | who grants a class | `gap_16__a_grant_is_told_and_never_above_what_was_asked` |
//!
//! `queues.rs` has every call, and the declarations of the proposal and of its extension as they
//! are printed.

use crate::pes::Ground;

/// Runs the check of gap `number` on all grounds.
fn check(number: u32) {
    let argument = number.to_string();
    Ground::Near.run("gaps.c", &[4], &[&argument]);
    Ground::Udp.run("gaps.c", &[4], &[&argument]);
    Ground::Libfabric.run("gaps.c", &[2], &[&argument]);
}

#[test]
fn gap_01__shared_queues_take_pushes_of_four_threads_at_once() {
    check(1);
}

#[test]
fn gap_02__a_queue_with_outstanding_elements_stays() {
    check(2);
}

#[test]
fn gap_03__all_atomics_and_strides_have_operations() {
    check(3);
}

#[test]
fn gap_04__a_flush_can_be_asked_about_later_and_end_with_a_signal() {
    check(4);
}

#[test]
fn gap_05__an_operation_that_a_type_has_not_writes_nothing() {
    check(5);
}

#[test]
fn gap_06__all_members_return_the_same_of_a_flush() {
    check(6);
}

#[test]
fn gap_07__progress_of_one_pe_needs_no_other() {
    check(7);
}

#[test]
fn gap_08__the_source_may_change_behind_a_push() {
    check(8);
}

#[test]
fn gap_09__fences_order_and_data_come_out_in_order() {
    check(9);
}

#[test]
fn gap_10__a_barrier_completes_queues_of_any_class() {
    check(10);
}

#[test]
fn gap_11__a_full_queue_refuses_whole_pushes_without_effect() {
    check(11);
}

#[test]
fn gap_12__a_time_out_is_in_seconds_and_may_be_infinite() {
    check(12);
}

#[test]
fn gap_13__a_qos_queue_never_gathers() {
    check(13);
}

#[test]
fn gap_14__zeros_ask_for_no_class() {
    check(14);
}

#[test]
fn gap_15__a_get_has_its_values_behind_a_flush() {
    check(15);
}

#[test]
fn gap_16__a_grant_is_reported_and_never_above_what_was_asked() {
    check(16);
}
