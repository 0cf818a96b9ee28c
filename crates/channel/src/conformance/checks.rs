//! The checks, one function each.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use notification::{Bytes, Chunk, Content, Pause, Pauses, Report, Scope, Verdict, limits};

use tokio::sync::watch;

use super::fixtures::{ChannelRig, CollectedReports, Counting, Granting};
use super::{Behaviour, TestedChannel};
use crate::{Job, timestamp};

pub(super) fn recipients_and_contents(subject: &dyn TestedChannel) {
    let Some(channel) = subject.channel(Behaviour::Accepts) else { return };
    let recipient = subject.recipient(Behaviour::Accepts, 0);
    let destination = channel.destination(&recipient);
    assert!(destination.is_ok(), "{recipient}: {destination:?}");
    assert_eq!(destination, channel.destination(&recipient), "a recipient keeps its destination");
    let Content { payload, options, .. } = subject.content();
    assert_eq!(channel.check_content(&payload, &options), Ok(()));
    assert!(channel.bounds().concurrency.is_possible(), "nothing could ever be sent");
}

pub(super) async fn each_delivery_is_reported_once(rig: &ChannelRig<'_>) {
    for count in [0, 1, 2, 700] {
        let reports = rig.send(&rig.chunk(count), &Counting::new(64).gate()).await;
        assert_eq!(reports.len(), usize::from(count), "each delivery is reported");
        all_accepted(&reports);
    }
}

pub(super) async fn the_gate_is_kept(rig: &ChannelRig<'_>) {
    for limit in [1, 7] {
        let counting = Counting::new(limit);
        let gate = counting.gate();
        all_accepted(&rig.send(&rig.chunk(50), &gate).await);
        assert_eq!(counting.finished.load(Ordering::Relaxed), 50, "each attempt finishes its pass");
        assert!(
            counting.most_in_flight.load(Ordering::Relaxed) <= limit,
            "more attempts than passes"
        );
        assert_eq!(gate.in_flight(), 0, "a pass was kept");
    }
}

pub(super) async fn several_jobs_share_a_sender(rig: &ChannelRig<'_>) {
    let (chunk, counting) = (rig.chunk(40), Counting::new(5));
    let gate = counting.gate();
    let all = join_all((0..4).map(|_| rig.send(&chunk, &gate))).await;
    for reports in &all {
        assert_eq!(reports.len(), 40);
        all_accepted(reports);
    }
    assert!(counting.most_in_flight.load(Ordering::Relaxed) <= 5, "more attempts than passes");
}

pub(super) async fn what_must_not_start_is_reported_without_an_attempt(rig: &ChannelRig<'_>) {
    let counting = Counting::new(8);
    let mut expired = rig.chunk(300);
    expired.envelope.expires_at = Some(timestamp(rig.clock));
    let reports = rig.send(&expired, &counting.gate()).await;
    assert_eq!(reports.len(), 300);
    assert!(reports.values().all(|report| *report == Report::Expired), "{reports:?}");
    let mut late = rig.chunk(300);
    late.lease_until = timestamp(rig.clock).plus(limits::LEASE_MARGIN);
    let reports = rig.send(&late, &counting.gate()).await;
    assert_eq!(reports.len(), 300);
    let handed_back = |report: &Report| matches!(report, Report::HandedBack { .. });
    assert!(reports.values().all(handed_back), "{reports:?}");
    let (chunk, gate) = (rig.chunk(300), counting.gate());
    let (stopped, paused) = (watch::channel(true).1, paused(&chunk));
    for (stopping, pauses) in [(&stopped, &rig.pauses), (&rig.stopping, &paused)] {
        let reports = CollectedReports::default();
        rig.sender.send(Job { stopping, pauses, ..rig.job(&chunk, &gate, &reports) }).await;
        let reports = reports.0.into_inner();
        assert_eq!(reports.len(), 300);
        assert!(reports.values().all(handed_back), "{reports:?}");
    }
    assert_eq!(counting.finished.load(Ordering::Relaxed), 0, "an attempt was made");
}

/// All of the tenant of `chunk` is paused.
fn paused(chunk: &Chunk) -> watch::Receiver<Arc<Pauses>> {
    let (tenant, since) = (chunk.envelope.lane.tenant.clone(), chunk.accepted_at);
    let pauses = Pauses::from_iter([Pause { tenant, scope: Scope::Tenant, since }]);
    watch::channel(Arc::new(pauses)).1
}

pub(super) async fn what_cannot_be_begun_is_not_sent(rig: &ChannelRig<'_>) {
    let counting = Counting::new(8);
    for grants in [true, false] {
        let (chunk, gate, reports) = (rig.chunk(300), counting.gate(), CollectedReports::default());
        let fence = Granting::new(grants);
        let job = rig.job(&chunk, &gate, &reports);
        rig.sender.send(Job { fence: Some(&fence), ..job }).await;
        let reports = reports.0.into_inner();
        assert_eq!(reports.len(), 300);
        assert_eq!(fence.asked.borrow().len(), 300, "each is asked for");
        if grants {
            all_accepted(&reports);
        } else {
            assert!(reports.values().all(|report| *report == Granting::REFUSAL), "{reports:?}");
        }
    }
}

pub(super) async fn a_delivery_without_a_content_is_refused(rig: &ChannelRig<'_>) {
    let mut chunk = rig.chunk(2);
    chunk.content = None;
    let reports = rig.send(&chunk, &Counting::new(8).gate()).await;
    assert_eq!(reports.len(), 2);
    for report in reports.values() {
        assert_eq!(verdict(report), Verdict::Refused { gone: false });
    }
}

pub(super) async fn own_contents_come_first(rig: &ChannelRig<'_>) {
    let mut chunk = rig.chunk(3);
    for delivery in &mut chunk.deliveries {
        delivery.content = Some(Box::new(rig.subject.content()));
    }
    // This must not be sent: the chunk has it for deliveries without their own.
    chunk.content =
        Some(Content { payload: Bytes::from_static(b"\0"), options: Bytes::new(), fallback: None });
    all_accepted(&rig.send(&chunk, &Counting::new(8).gate()).await);
}

pub(super) async fn a_job_that_is_given_up_frees_its_places(rig: &ChannelRig<'_>) {
    let gate = Counting::new(4).gate();
    let (chunk, reports) = (rig.chunk(20), CollectedReports::default());
    let job = rig.job(&chunk, &gate, &reports);
    assert!(rig.sender.send(job).now_or_never().is_none(), "20 deliveries took no time at all");
    assert_eq!(gate.in_flight(), 0, "a pass was kept");
    all_accepted(&rig.send(&chunk, &gate).await);
}

pub(super) async fn a_provider_that_cuts_off_leaves_it_unknown(rig: &ChannelRig<'_>) {
    let reports = rig.send(&rig.chunk(1), &Counting::new(8).gate()).await;
    for report in reports.values() {
        assert_eq!(verdict(report), Verdict::Unknown, "{report:?}");
    }
    assert_eq!(reports.len(), 1);
}

fn all_accepted(reports: &BTreeMap<u16, Report>) {
    for (index, report) in reports {
        assert_eq!(verdict(report), Verdict::Accepted, "delivery {index}: {report:?}");
    }
}

#[expect(clippy::panic, reason = "a check fails by panicking")]
fn verdict(report: &Report) -> Verdict {
    match report {
        Report::Attempted(answer) => answer.verdict,
        Report::HandedBack { .. } | Report::Expired => panic!("no attempt was made: {report:?}"),
    }
}
