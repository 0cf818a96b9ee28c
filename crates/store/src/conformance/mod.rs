//! The conformance suite of stores. Backends and doubles run [`exercise`] in their tests.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a suite fails by panicking"
)]

mod accounts;
mod acts;
mod broadcasts;
mod cancelling;
mod claiming;
mod erasing;
mod events;
mod fallbacks;
mod idempotency;
mod ingest;
mod keys;
mod labels;
mod lanes;
mod leases;
mod ledger;
mod pausing;
mod probing;
mod quotas;
mod requeueing;
mod rescheduling;
mod resolving;
mod retention;
mod settling;
mod slices;
mod sources;
mod support;
mod suppression;
mod tickets;
mod traces;

use std::any::Any;
use std::sync::Arc;

use notification::Ticket;

use crate::{Claims, QuotaLedger, Store, TakeTickets};
pub use support::{
    BroadcastShape, Shape, at, claim_all, claim_by_tenant, claim_request, groups, groups_in_turn,
    name, settle_all, the_books_balance,
};
#[cfg(test)]
pub(crate) use support::{DELIVERED, indexes, kept_for_a_day, list_in_pages, part, prune_all};

/// A store under test, empty, and whatever must live as long.
#[derive(Debug)]
pub struct Subject {
    /// The store.
    pub store: Arc<dyn Store>,
    /// A directory, a server; dropped after the store.
    pub keep: Box<dyn Any + Send>,
}

/// A store under test that also issues tickets, twice: as two processes see it.
#[derive(Debug)]
pub struct SharedSubject<S> {
    /// Store of one process.
    pub one: Arc<S>,
    /// Store of another process, on the same notifications.
    pub other: Arc<S>,
    /// A directory, a server; dropped after the stores.
    pub keep: Box<dyn Any + Send>,
}

/// Runs every case of tickets, each on a fresh store, and checks after each that the books balance.
pub async fn exercise_tickets<S: Store + Claims<Ticket> + TakeTickets>(
    make: impl AsyncFn() -> SharedSubject<S>,
) {
    macro_rules! cases {
        ($($area:ident: $($case:ident)+;)+) => {
            $($({
                let subject = make().await;
                $area::$case(&*subject.one, &*subject.other).await;
                the_books_balance(&*subject.one).await;
                the_books_balance(&*subject.other).await;
            })+)+
        };
    }
    cases! {
        tickets:
            a_ticket_is_good_once
            a_ticket_may_be_for_a_part_of_a_chunk
            a_ticket_is_void_when_its_lease_ends_and_another_is_issued
            what_must_not_be_sent_ends_when_its_ticket_is_taken
            what_one_process_holds_the_other_cannot_touch;
        rescheduling:
            a_ticket_sends_nothing_before_its_new_time;
    }
}

/// Runs every case of quotas that processes share, each on a fresh store.
pub async fn exercise_quotas<S: QuotaLedger>(make: impl AsyncFn() -> SharedSubject<S>) {
    macro_rules! cases {
        ($($case:ident)+) => {
            $({
                let subject = make().await;
                quotas::$case(&*subject.one, &*subject.other).await;
            })+
        };
    }
    cases! {
        a_part_is_raised_by_what_no_other_holds
        each_quota_has_its_own_number
        what_is_given_back_is_free
        those_who_ask_at_once_are_given_no_more_than_there_is
        turns_of_two_processes_follow_each_other
        what_one_process_learns_the_other_goes_by
        a_rate_that_ends_no_refusals_is_given_up_by_all
    }
}

/// Runs every case of broadcasts between two of their slices, each on a fresh store whose slices are one batch each, are
/// made by `make_slice` alone, and made until that gives `false`; and checks after each that the books balance.
pub async fn exercise_slices<S: Store>(
    make: impl AsyncFn() -> (Arc<S>, Box<dyn Any + Send>),
    make_slice: impl AsyncFn(&S) -> bool,
) {
    macro_rules! cases {
        ($($area:ident: $($case:ident)+;)+) => {
            $($({
                let (store, _keep) = make().await;
                $area::$case(&*store, &async || make_slice(&*store).await).await;
                while make_slice(&*store).await {
                    the_books_balance(&*store).await;
                }
                the_books_balance(&*store).await;
            })+)+
        };
    }
    cases! {
        slices:
            what_waits_is_pending_everywhere
            what_waits_or_is_withdrawn_is_listed_page_by_page
            a_waiting_one_is_cancelled_and_never_sent
            one_of_a_waiting_batch_is_cancelled_and_the_others_are_sent
            what_waits_is_withdrawn_with_its_broadcast_at_once
            a_cancellation_goes_by_slices_and_counts_everybody_once
            a_small_broadcast_goes_before_the_rest_of_a_large_one
            a_paused_broadcast_is_neither_released_nor_claimed
            a_paused_broadcast_is_put_away_by_the_chunk_however_little_is_sent
            what_is_resumed_comes_back_slice_by_slice
            a_paused_broadcast_expires_and_is_cancelled
            what_waits_is_withdrawn_with_its_channel_and_comes_back
            a_lane_is_cancelled_with_what_waits_for_it
            what_is_put_away_is_cancelled_by_its_lane
            a_cancellation_looks_at_a_slice_in_each_call
            what_was_withdrawn_is_erased_before_its_slice_comes;
        rescheduling:
            what_is_not_released_yet_is_due_at_the_new_time
            a_paused_broadcast_is_resumed_to_its_new_time;
        accounts:
            what_waits_is_in_the_account_of_its_tenant;
    }
}

/// Runs every case, each on a fresh store, and checks after each that the books balance.
pub async fn exercise(make: impl AsyncFn() -> Subject) {
    exercise_the_way_through(&make).await;
    exercise_everything_else(&make).await;
    exercise_what_is_read(&make).await;
    exercise_what_is_removed(&make).await;
}

macro_rules! cases {
    ($make:ident, $($area:ident: $($case:ident)+;)+) => {
        $($({
            let subject = $make().await;
            $area::$case(&*subject.store).await;
            the_books_balance(&*subject.store).await;
        })+)+
    };
}

async fn exercise_the_way_through(make: &impl AsyncFn() -> Subject) {
    cases! { make,
        ingest:
            nothing_in_means_nothing_done
            what_is_accepted_is_found_as_it_was_given
            a_large_request_is_cut_into_batches
            large_contents_are_cut_into_batches;
        idempotency:
            the_same_key_twice_is_one_notification
            the_same_key_twice_in_one_request_is_one_notification
            a_key_with_other_content_refuses_the_whole_request
            what_comes_too_late_is_answered_only_if_its_key_was_used
            a_key_belongs_to_its_tenant;
        broadcasts:
            an_open_broadcast_is_not_there_yet
            a_sealed_broadcast_is_claimed_with_one_content
            what_is_left_of_a_broadcast_is_told_by_lane
            recipients_with_contents_of_their_own_are_sent_those
            large_contents_of_recipients_are_cut_into_batches
            a_large_content_is_in_memory_once_and_counted_for_every_lane
            an_abandoned_broadcast_never_was
            sealed_broadcasts_of_a_tenant_are_listed
            a_list_of_broadcasts_is_filtered
            a_key_belongs_to_a_broadcast_from_sealing_on;
        claiming:
            nothing_is_claimed_before_it_is_due
            urgent_lanes_go_first_and_equal_ones_in_turn
            tenants_have_turns_however_many_lanes_they_have
            lanes_below_the_lowest_priority_wait
            when_all_lanes_together_are_full_only_urgent_ones_get_more
            lanes_that_answer_nobody_leave_room_for_the_next
            lanes_of_channels_that_are_not_offered_are_parked
            parked_channels_say_how_much_waits
            a_full_lane_gets_nothing_more
            a_claim_stops_at_the_items_wanted_and_says_that_there_is_more
            a_claim_stops_at_its_bytes_and_says_that_there_is_more
            a_lane_of_large_contents_holds_few_of_them_and_leaves_room_for_others
            what_expired_is_settled_and_not_returned
            changes_tell_of_new_work;
        probing:
            how_fast_a_lane_went_while_it_was_busy_is_known
            an_unproven_lane_is_given_a_few_and_more_when_these_are_answered
            a_lane_that_fails_is_given_one_at_a_time_and_ever_later
            a_lane_that_answered_lately_is_probed_beside_the_probes_under_way
            what_was_not_sent_tells_nothing
            what_expired_is_no_probe
            a_suppressed_recipient_is_no_probe
            what_expired_ends_at_once_however_little_may_be_sent
            lanes_that_do_not_answer_leave_room_for_those_that_do;
        leases:
            a_lease_that_ended_is_claimed_again_with_a_new_epoch
            a_late_settlement_is_stale
            at_most_once_that_began_is_in_doubt_when_its_lease_ends
            a_mark_needs_the_current_claim;
        settling:
            every_outcome_is_logged_and_counted
            a_chunk_is_settled_in_parts_and_no_part_twice
            a_retry_is_due_again_with_the_next_attempt
            retries_of_one_instant_are_one_chunk_whatever_was_answered
        retries_of_one_instant_are_one_chunk_whenever_they_were_settled
            what_would_be_tried_too_late_has_expired_with_its_attempt
            what_is_handed_back_keeps_its_attempt_and_is_not_logged
            a_stale_part_leaves_the_others_alone;
        acts:
            an_act_is_there_from_its_beginning_on
            acts_are_listed_newest_first_by_what_they_concern
            old_acts_go_but_the_last;
    }
}

async fn exercise_everything_else(make: &impl AsyncFn() -> Subject) {
    cases! { make,
        suppression:
            a_suppressed_recipient_is_not_sent_to
            a_gone_recipient_joins_the_list
            the_list_is_kept_in_order_and_taken_back
            the_providers_own_time_is_kept
            who_registered_anew_is_not_suppressed_for_what_was_before
            an_operators_word_yields_to_a_plain_lift_only
            the_latest_that_anybody_said_counts
            every_change_of_the_list_is_an_event
            channels_with_a_list_are_named_in_order
            a_feed_moves_only_from_where_it_is;
        events:
            every_end_is_an_event_and_attempts_on_request
            a_reader_resumes_within_what_was_settled_together
            events_are_those_of_one_tenant_and_a_broadcast_is_named
            a_feeds_own_notifications_are_no_events
            a_feed_that_starts_at_the_end_misses_nothing_later
            a_settlement_wakes_those_who_follow;
        sources:
            a_shard_moves_only_from_the_state_that_it_is_in;
        fallbacks:
            a_fallback_is_accepted_with_the_refusal_and_takes_the_others_along
            a_settlement_that_is_stale_accepts_no_fallback
            a_fallback_is_accepted_when_its_recipient_is_suppressed
            fallbacks_are_kept_beside_contents_without
            fallbacks_of_a_broadcast_share_their_contents;
        cancelling:
            what_is_pending_is_cancelled_once
            what_is_claimed_is_under_way
            a_broadcast_is_cancelled_as_far_as_it_goes
            nobody_cancels_for_another_tenant
            a_scope_is_cancelled_and_nothing_else
            what_is_paused_is_cancelled_to_the_last
            a_broadcast_is_a_scope_like_the_others
            a_lane_is_cancelled_with_its_part_of_a_broadcast;
        rescheduling:
            one_of_many_has_another_time_and_the_others_have_theirs
            one_alone_goes_to_any_time
            what_is_claimed_or_ended_keeps_its_time
            what_would_expire_first_is_refused
            a_broadcast_is_rescheduled_as_far_as_it_waits
            nobody_reschedules_for_another_tenant;
        pausing:
            what_is_paused_waits_until_it_is_resumed
            to_pause_or_resume_twice_is_to_do_it_once
            the_view_of_deliver_is_as_new_as_the_answer
            what_is_claimed_and_handed_back_waits_with_the_rest
            what_is_paused_is_cancelled_and_expires
            a_resumed_lane_is_told_of;
        requeueing:
            a_dead_one_is_sent_again_as_itself
            a_cancelled_one_is_sent_again_as_itself
            what_is_cancelled_and_dead_in_turn_is_counted_where_it_stands
            what_is_not_dead_stays_as_it_is
            what_expired_meanwhile_is_not_sent_again
            two_who_requeue_the_same_requeue_it_once
            a_broadcast_counts_what_was_requeued_and_died_again
            refused_ones_and_those_in_doubt_are_sent_again_when_they_are_meant;
        resolving:
            what_is_in_doubt_ends_as_an_operator_found_out
            an_end_by_hand_is_an_event_and_the_doubt_taken_back_is_none
            what_is_not_in_doubt_stays_as_it_is
            one_that_did_not_arrive_may_be_sent_again_and_be_in_doubt_again
            one_of_which_nothing_is_left_to_send_is_resolved
            of_calls_about_the_same_one_does;
    }
}

async fn exercise_what_is_read(make: &impl AsyncFn() -> Subject) {
    cases! { make,
        accounts:
            outcomes_are_in_the_account_of_their_tenant
            what_ends_without_an_attempt_is_counted_for_its_tenant
            operators_change_the_account_of_the_tenant_that_they_name
            broadcasts_are_in_the_account_of_their_tenant
            a_fallback_is_in_the_account_of_its_tenant
            what_is_erased_or_gone_stays_in_the_account_of_its_tenant;
        keys:
            keys_are_added_rotated_and_revoked;
        ledger:
            strangers_are_not_found
            a_list_is_paged_and_filtered
            a_list_in_the_other_order_is_the_same_one_backwards
            what_ended_badly_is_found_among_what_did_not
            what_waits_or_was_cancelled_is_found_among_what_did_not
            a_list_has_what_was_accepted_within_a_time
            the_room_of_a_store_grows_with_what_it_holds
            a_recipient_is_found_by_its_tenant_and_at_once
            the_log_is_read_once_from_start_to_end
            lanes_show_their_work;
        lanes:
            all_lanes_are_listed_however_long_their_backlogs_are
            of_too_many_lanes_those_that_are_due_first_are_listed
            what_waits_is_counted_by_channel_and_priority_up_to_a_bound;
        traces:
            a_trace_goes_with_each_attempt
            a_part_of_a_chunk_has_the_traces_of_its_deliveries_alone
            what_is_sent_again_has_another_span
            what_stands_in_for_a_traced_one_is_traced
            some_recipients_of_a_broadcast_are_traced;
        labels:
            notifications_are_found_by_their_labels
            notifications_are_found_by_the_reason_of_their_end
            those_of_a_broadcast_have_its_tags_and_ids_of_their_own
            a_fallback_has_the_labels_of_what_it_stands_in_for
            labels_go_with_the_recipient
            events_have_labels_and_are_filtered_by_tag
            a_key_leads_to_what_it_was_used_for;
    }
}

async fn exercise_what_is_removed(make: &impl AsyncFn() -> Subject) {
    cases! { make,
        retention:
            parts_go_one_after_the_other
            what_is_long_over_goes_at_once
            what_is_pending_stays_until_it_has_ended
            lifetimes_are_of_tenant_and_state
            a_broadcast_counts_what_is_gone_until_all_of_it_is
            what_was_resolved_by_hand_is_counted_once_when_it_is_gone
            a_key_is_kept_for_its_lifetime_and_as_long_as_the_content
            many_batches_take_many_steps
            old_changes_of_the_list_go_but_the_last;
        erasing:
            what_is_erased_is_counted_and_not_found_by_its_recipient
            a_shared_content_goes_with_the_last_that_has_it
            what_may_fall_back_to_a_recipient_is_found_by_it
            events_of_what_was_erased_name_no_recipient
            nothing_of_the_list_is_left_of_a_recipient;
    }
}
