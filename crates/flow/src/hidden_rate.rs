//! Destinations that keep to a rate and do not publish it.

/// How a destination counts. Rates in messages a second.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Hidden {
    /// A token bucket with room for so many seconds.
    Bucket(f64),
    /// A number in each minute of the clock.
    Minutes,
    /// It refuses nothing.
    Nothing,
}

/// A destination that any number of processes send to.
pub(crate) struct Destination {
    hidden: Hidden,
    /// The rate, and the one after [`CHANGE`].
    pub(crate) rates: (f64, f64),
    tokens: f64,
    at: f64,
    minute: f64,
}

/// When the rate changes, seconds.
pub(crate) const CHANGE: f64 = 400.0;

impl Destination {
    pub(crate) fn new(hidden: Hidden, rates: (f64, f64)) -> Self {
        Self { hidden, rates, tokens: f64::MAX, at: 0.0, minute: -1.0 }
    }

    fn rate(&self, now: f64) -> f64 {
        if now < CHANGE { self.rates.0 } else { self.rates.1 }
    }

    /// `Some` seconds to wait, if it is refused.
    pub(crate) fn asked(&mut self, now: f64) -> Option<f64> {
        let rate = self.rate(now);
        match self.hidden {
            Hidden::Nothing => return None,
            Hidden::Bucket(seconds) => {
                let tokens = self.tokens + (now - self.at) * rate;
                self.tokens = tokens.min((seconds * rate).max(1.0));
                self.at = now;
            }
            Hidden::Minutes if (now / 60.0).floor() > self.minute => {
                self.minute = (now / 60.0).floor();
                self.tokens = 60.0 * rate;
            }
            Hidden::Minutes => {}
        }
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return None;
        }
        let wait = match self.hidden {
            Hidden::Minutes => (self.minute + 1.0) * 60.0 - now,
            Hidden::Bucket(_) | Hidden::Nothing => (1.0 - self.tokens) / rate,
        };
        // As the header field has it.
        Some(wait.ceil())
    }
}
