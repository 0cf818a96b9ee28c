//! The part of a latency that may be the sender's own.

/// The sender's and its machine's part of the latency, where so many answers come in a second that it cannot be told from the
/// destination's: it rises long before more cannot be done, since what comes together is done together, and cheaper.
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnLatency {
    rate: f64,
}

/// Answers a second from which on more latency is tolerated, and at which all of it is.
const TOLERANCE_FROM: f64 = 2_000.0;
const TOLERANCE_FULL: f64 = 10_000.0;
/// That latency, as a logarithm, beyond what is tolerated of a destination.
const TOLERANCE: f64 = 0.05;
/// Latency that is expected beside the destination's, in seconds, with the answers a second from which on some of it is, and at which all
/// of it is. The second is for rates that few destinations limit, and that a process reaches only with many requests in its own hands.
const LATENCIES: [(f64, f64, f64); 2] = [(0.01, 10_000.0, 20_000.0), (0.015, 50_000.0, 200_000.0)];
/// The requests in flight that this stands for at most: with so many under way beside those that the destination holds a process does all
/// that it can on one machine, and more would only wait in it.
const IN_FLIGHT: f64 = 20_000.0;

// === impl OwnLatency ===

impl OwnLatency {
    /// At `rate` answers a second.
    pub(super) fn at(rate: f64) -> Self {
        Self { rate }
    }

    /// Seconds beside the latency of the destination that are no sign of load.
    pub(super) fn seconds(self) -> f64 {
        let latencies = LATENCIES.map(|(latency, from, full)| latency * self.share(from, full));
        latencies.iter().sum::<f64>().min(IN_FLIGHT / self.rate.max(1.0))
    }

    /// Latency above the expected one that is no sign of load, beyond what is tolerated of a destination.
    pub(super) fn tolerance(self) -> f64 {
        TOLERANCE * self.share(TOLERANCE_FROM, TOLERANCE_FULL)
    }

    /// How far the rate is from `from` to `full`, between 0 and 1.
    fn share(self, from: f64, full: f64) -> f64 {
        ((self.rate - from) / (full - from)).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_latency_as_a_busy_machine_needs_is_no_sign_of_load() {
        for (rate, milliseconds) in [
            (0.0, 0.0),
            (10_000.0, 0.0),
            (15_000.0, 5.0),
            (20_000.0, 10.0),
            (50_000.0, 10.0),
            (125_000.0, 17.5),
            (200_000.0, 25.0),
            (800_000.0, 25.0),
            (2e6, 10.0),
        ] {
            assert!((OwnLatency::at(rate).seconds() * 1e3 - milliseconds).abs() < 1e-9, "{rate}");
        }
        for (rate, tolerance) in [(0.0, 0.0), (2_000.0, 0.0), (6_000.0, 0.025), (1e6, 0.05)] {
            assert!((OwnLatency::at(rate).tolerance() - tolerance).abs() < 1e-9, "{rate}");
        }
    }
}
