//! The spans of attempts.

use std::sync::Arc;

use channel::Attempt;
use flow::Clock;
use notification::{Answer, Chunk, Report, Verdict};
use tokio::time::Instant;

use crate::metrics::attempt_code;
use crate::spans::{SpanKind, SpanSink, SpanValue, TraceSpan};

/// Tells of the attempts of a chunk of which some are traced.
#[derive(Debug, Clone)]
pub(super) struct AttemptSpans {
    sink: Arc<dyn SpanSink>,
    clock: Clock,
}

// === impl AttemptSpans ===

impl AttemptSpans {
    /// Those of `chunk` for `sink`; `None` if none of its deliveries is traced.
    pub(super) fn of(
        chunk: &Chunk,
        sink: Option<&Arc<dyn SpanSink>>,
        clock: Clock,
    ) -> Option<Self> {
        let sink = sink.filter(|_| !chunk.traces.is_empty())?;
        Some(Self { sink: Arc::clone(sink), clock })
    }

    /// Tells of an attempt at the delivery at `index` that was let in at `since` and ends now, if it is traced and was made.
    pub(super) fn ended(&self, chunk: &Chunk, index: u16, since: Instant, attempt: &Attempt) {
        let (Some(trace), Some(context), Report::Attempted(answer)) =
            (chunk.trace(index), chunk.attempt_trace(index), &attempt.report)
        else {
            return;
        };
        let id = chunk.notification_id(index);
        let ended_at = self.clock.wall();
        let took = self.clock.monotonic().saturating_duration_since(since);
        let began_at = ended_at.saturating_sub(took);
        let lane = &chunk.envelope.lane;
        let queued = began_at.saturating_sub(chunk.due_since(index).to_unix());
        let code = attempt_code(answer.status, &answer.detail);
        let verdict = verdict(answer);
        let mut attributes: Vec<(&'static str, SpanValue)> = vec![
            ("belfry.notification.id", id.to_string().into()),
            ("belfry.tenant", lane.tenant.to_string().into()),
            ("belfry.channel", lane.channel.to_string().into()),
            ("belfry.priority", lane.priority.as_str().into()),
            ("belfry.destination", lane.destination.to_string().into()),
            ("belfry.attempt", chunk.attempt.into()),
            ("belfry.queued_ms", queued.as_millis().into()),
            ("belfry.verdict", verdict.into()),
            ("belfry.code", SpanValue::Text(code.clone())),
        ];
        if let Some(broadcast) = chunk.envelope.broadcast {
            attributes.push(("belfry.broadcast.id", broadcast.to_string().into()));
        }
        if let Some(timing) = attempt.timing {
            attributes.push(("belfry.wire_us", timing.on_wire.as_micros().into()));
        }
        self.sink.record(TraceSpan {
            context,
            parent: Some(trace.span),
            kind: SpanKind::Client,
            name: format!("attempt {}", lane.channel).into(),
            began_at,
            ended_at,
            attributes,
            error: (answer.verdict != Verdict::Accepted).then_some(code),
        });
    }
}

fn verdict(answer: &Answer) -> &'static str {
    match answer.verdict {
        Verdict::Accepted => "accepted",
        Verdict::Refused { .. } => "refused",
        Verdict::Deferred { .. } => "deferred",
        Verdict::Unknown => "unknown",
    }
}
