//! Traces: which request of a caller a notification comes from, so that its attempts can be shown beside that request. Contexts are
//! read and written as [W3C Trace Context](https://www.w3.org/TR/trace-context/) has them; the words are those of OpenTelemetry.

use std::fmt;

use crate::id::NotificationId;
use crate::time::Timestamp;

/// Identifier of a trace: 16 bytes, not all of them zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId([u8; 16]);

/// Identifier of a span within its trace: 8 bytes, not all of them zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId([u8; 8]);

/// Place in a trace that is recorded: what comes next is a child of its span. Without one, nothing is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    /// The trace.
    pub trace: TraceId,
    /// The span that is the parent of what comes next.
    pub span: SpanId,
}

/// Context of a caller, as its request has it in the header `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    /// Where the request stands.
    pub context: TraceContext,
    /// True if the caller records it.
    pub is_sampled: bool,
}

/// Bytes of a context in a store.
pub const CONTEXT_BYTES: usize = 24;

/// Bytes of a `traceparent` of version 00.
const PARENT_BYTES: usize = 55;

// === impl TraceId ===

impl TraceId {
    /// The identifier with these bytes; `None` if all are zero, which stands for no trace.
    pub fn new(bytes: [u8; 16]) -> Option<Self> {
        (bytes != [0; 16]).then_some(Self(bytes))
    }

    /// The identifier number `number` of a process that has drawn `seed`: as good as random, as samplers of others expect.
    pub fn of_number(seed: [u64; 2], number: u64) -> Self {
        let [high, low] = seed.map(|seed| u128::from(mix(seed ^ mix(number))));
        Self((high << 64 | low).max(1).to_be_bytes())
    }

    /// The part of all traces, from 0 to less than 1, at which it stands: those below a ratio are recorded.
    pub fn part(self) -> f64 {
        let number = u128::from_be_bytes(self.0) >> 75;
        #[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
        let part = number as f64 / (1_u64 << 53) as f64;
        part
    }

    /// Its bytes.
    pub const fn bytes(self) -> [u8; 16] {
        self.0
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

// === impl SpanId ===

impl SpanId {
    /// The identifier with these bytes; `None` if all are zero, which stands for no span.
    pub fn new(bytes: [u8; 8]) -> Option<Self> {
        (bytes != [0; 8]).then_some(Self(bytes))
    }

    /// The identifier number `number` of a process that has drawn `seed`.
    pub fn of_number(seed: u64, number: u64) -> Self {
        Self(mix(seed ^ mix(number)).max(1).to_be_bytes())
    }

    /// Of the attempt at a notification that is made under a claim with a lease until `lease_until`. It follows from these, so that a
    /// channel can hand it on before the attempt ends. A notification that is sent again, as its first attempt once more, has
    /// another claim, and so another span.
    pub fn of_attempt(notification: NotificationId, lease_until: Timestamp) -> Self {
        let halves = u128::from_be_bytes(notification.to_bytes());
        #[expect(clippy::cast_possible_truncation, reason = "both halves are taken")]
        let (high, low) = ((halves >> 64) as u64, halves as u64);
        let claim = lease_until.millis().cast_unsigned();
        Self(mix(high ^ mix(low ^ mix(claim))).max(1).to_be_bytes())
    }

    /// Its bytes.
    pub const fn bytes(self) -> [u8; 8] {
        self.0
    }
}

/// The finalizer of `SplitMix64` (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014): each bit of the result
/// depends on all bits of `number`.
const fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

impl fmt::Display for SpanId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", u64::from_be_bytes(self.0))
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

// === impl TraceContext ===

impl TraceContext {
    /// The context as a store keeps it.
    pub fn to_bytes(self) -> [u8; CONTEXT_BYTES] {
        let mut bytes = [0; CONTEXT_BYTES];
        let (trace, span) = bytes.split_at_mut(16);
        trace.copy_from_slice(&self.trace.0);
        span.copy_from_slice(&self.span.0);
        bytes
    }

    /// The context that a store has kept; `None` for what is none. To lose a trace is better than not to deliver.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (trace, span) = bytes.split_first_chunk::<16>()?;
        let (trace, span) = (TraceId::new(*trace)?, SpanId::new(span.try_into().ok()?)?);
        Some(Self { trace, span })
    }

    /// The value of `traceparent` that hands it on: version 00, recorded.
    pub fn traceparent(self) -> String {
        format!("00-{}-{}-01", self.trace, self.span)
    }
}

// === impl TraceParent ===

impl TraceParent {
    /// Reads the value of a header `traceparent`; `None` for one that is to be ignored. A later version may have more behind what
    /// this one has (section 3.2.4).
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (known, rest) = value.split_at_checked(PARENT_BYTES)?;
        let mut fields = known.split(|byte| *byte == b'-');
        let mut next = || fields.next();
        let [version] = hex::<1>(next()?)?;
        let trace = TraceId::new(hex(next()?)?)?;
        let span = SpanId::new(hex(next()?)?)?;
        let [flags] = hex::<1>(next()?)?;
        let is_whole = match version {
            0 => rest.is_empty(),
            // Forbidden (section 3.2.2.1).
            0xff => false,
            _ => rest.first().is_none_or(|byte| *byte == b'-'),
        };
        let context = TraceContext { trace, span };
        (is_whole && next().is_none()).then_some(Self { context, is_sampled: flags & 1 == 1 })
    }
}

/// So many bytes in hexadecimal digits, which are lower-case.
fn hex<const BYTES: usize>(digits: &[u8]) -> Option<[u8; BYTES]> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    let mut bytes = [0; BYTES];
    if pairs.len() != BYTES {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::BatchId;
    use std::collections::HashSet;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_context_is_read_written_and_stored() {
        let parent = TraceParent::parse(PARENT.as_bytes()).unwrap();
        assert!(parent.is_sampled);
        let context = parent.context;
        assert_eq!(context.traceparent(), PARENT);
        assert_eq!(TraceContext::from_bytes(&context.to_bytes()), Some(context));
        let unsampled = PARENT.replace("-01", "-02");
        assert!(!TraceParent::parse(unsampled.as_bytes()).unwrap().is_sampled);
        let later = PARENT.replacen("00-", "01-", 1);
        for value in [format!("{later}-more"), later] {
            assert_eq!(TraceParent::parse(value.as_bytes()), Some(parent), "{value}");
        }
    }

    #[test]
    fn what_is_no_context_is_ignored() {
        let zero_trace = PARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32));
        let zero_span = PARENT.replace("00f067aa0ba902b7", &"0".repeat(16));
        let others = [
            String::new(),
            PARENT.to_uppercase(),
            PARENT.replace("00-", "ff-"),
            format!("{PARENT}-more"),
            format!("{}more", PARENT.replacen("00-", "01-", 1)),
            PARENT.replace('-', "_"),
            PARENT.replacen("00-4", "00--", 1),
            format!("{}g", PARENT.trim_end_matches('1')),
            zero_trace,
            zero_span,
        ];
        for value in others {
            assert_eq!(TraceParent::parse(value.as_bytes()), None, "{value}");
        }
        let whole = TraceParent::parse(PARENT.as_bytes()).unwrap().context.to_bytes();
        for wrong in [&[][..], whole.split_last().unwrap().1, &[0; CONTEXT_BYTES], &[1; 25]] {
            assert_eq!(TraceContext::from_bytes(wrong), None);
        }
    }

    #[test]
    fn numbers_make_identifiers_that_are_spread_evenly() {
        let traces: HashSet<TraceId> =
            (0..10_000).map(|number| TraceId::of_number([1, 2], number)).collect();
        let spans: HashSet<SpanId> =
            (0..10_000).map(|number| SpanId::of_number(3, number)).collect();
        assert_eq!((traces.len(), spans.len()), (10_000, 10_000));
        let below = |ratio| traces.iter().filter(|trace| trace.part() < ratio).count();
        assert_eq!((below(0.0), below(1.0)), (0, 10_000));
        assert!((70..130).contains(&below(0.01)), "{}", below(0.01));
        let others = |seed| (0..100).map(move |number| TraceId::of_number(seed, number));
        assert!(others([2, 1]).all(|other| !traces.contains(&other)));
    }

    #[test]
    fn attempts_have_spans_of_their_own() {
        let at = Timestamp::from_millis(1_000);
        let ids = (0..1_000_u16).flat_map(|index| {
            let of = |batch| NotificationId::new(at, 7, BatchId(batch), index);
            [of(1), of(2)]
        });
        let claims = || (0..10).map(|claim| Timestamp::from_millis(2_400_000 + claim));
        let spans: HashSet<SpanId> =
            ids.flat_map(|id| claims().map(move |until| SpanId::of_attempt(id, until))).collect();
        assert_eq!(spans.len(), 20_000);
        let id = NotificationId::new(at, 7, BatchId(1), 0);
        assert_eq!(SpanId::of_attempt(id, at), SpanId::of_attempt(id, at));
    }
}
