//! The options of the simulator, as command-line flags and as a plain structure.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Command, FromArgMatches};

use crate::capacity::CapacityStep;

/// Everything the simulator can be told. [`SimulatorOptions::default`] is what the flags default to.
#[derive(Debug, Clone, Args)]
#[command(about = "Local APNs, FCM, webhook, Web Push and mail providers that keep their own books", long_about = None)]
pub struct SimulatorOptions {
    /// Address of the APNs provider; port 0 takes any free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:2197")]
    pub apns: SocketAddr,

    /// Address of the webhook provider; port 0 takes any free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8443")]
    pub webhook: SocketAddr,

    /// Address of the push service for browsers, if there is to be one; port 0 takes any free one
    #[arg(long, value_name = "ADDRESS")]
    pub web_push: Option<SocketAddr>,

    /// Address of FCM and its token endpoint (`/token`), if there are to be any; port 0 takes any free one. The service account
    /// that may ask for tokens is made in the directory of the certificates
    #[arg(long, value_name = "ADDRESS")]
    pub fcm: Option<SocketAddr>,

    /// Messages that a project may send in a minute, else 429 for its rate
    #[arg(long, value_name = "COUNT", requires = "fcm")]
    pub fcm_quota: Option<NonZeroU64>,

    /// How long an access token is good
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration)]
    pub fcm_token_lifetime: Duration,

    /// Address of the mail server, if there is to be one; port 0 takes any free one
    #[arg(long, value_name = "ADDRESS")]
    pub smtp: Option<SocketAddr>,

    /// File that gets one line per request, before its answer leaves; continued when it exists
    #[arg(long, value_name = "FILE", default_value = "provider-sim.journal")]
    pub journal: PathBuf,

    /// Have each line on disk before its answer leaves
    #[arg(long)]
    pub fsync: bool,

    /// Directory of the certificate authority and the server certificate, made at first start
    #[arg(long, value_name = "DIRECTORY", default_value = "provider-sim-tls")]
    pub tls_dir: PathBuf,

    /// Serving threads; connections are spread over them
    #[arg(long, value_name = "COUNT", default_value = "1")]
    pub threads: NonZeroUsize,

    /// Streams a client may have open on one HTTP/2 connection
    #[arg(long, value_name = "COUNT", default_value = "1000")]
    pub max_streams: NonZeroU32,

    /// Allow one stream per APNs connection until a request with a valid provider token came
    #[arg(long)]
    pub apns_single_stream: bool,

    /// Public key (PEM) that provider tokens must be signed for; without it signatures pass
    #[arg(long, value_name = "FILE")]
    pub apns_public_key: Option<PathBuf>,

    /// Shortest time between two provider tokens of one team, else 429; zero does not check
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    pub apns_token_interval: Duration,

    /// Secret (whsec_...) that webhooks must be signed with; without it signatures pass
    #[arg(long, value_name = "SECRET")]
    pub webhook_secret: Option<String>,

    /// Public key (whpk_...) that webhooks must be signed for (v1a); without it such signatures pass
    #[arg(long, value_name = "KEY")]
    pub webhook_public_key: Option<String>,

    /// Public key that browsers have subscribed with (base64url), the only one that may send to them;
    /// without it every client may
    #[arg(long, value_name = "KEY", requires = "web_push")]
    pub web_push_key: Option<String>,

    /// Web Push subscriptions that are printed at the start, numbered from 0; any other number exists, too
    #[arg(long, value_name = "COUNT", default_value = "0", requires = "web_push")]
    pub web_push_subscriptions: u64,

    /// The login that may send mail; without it every client may
    #[arg(long, value_name = "USER:PASSWORD", requires = "smtp", value_parser = login)]
    pub smtp_login: Option<String>,

    /// Turn recipients of mail away for this long after their first mail (450 4.2.0)
    #[arg(long, value_name = "DURATION", requires = "smtp", value_parser = duration)]
    pub smtp_greylist: Option<Duration>,

    /// The faults, and how often each happens
    #[command(flatten)]
    pub faults: Faults,
}

/// Faults and delays. Everything drawn comes from one generator per thread and provider.
#[derive(Debug, Clone, Args)]
pub struct Faults {
    /// Time from a request to its answer
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    pub latency: Duration,

    /// Most that is added to the latency, uniformly
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    pub latency_jitter: Duration,

    /// Requests that are served at the same time, over all threads; further ones wait for their turn. With a time after
    /// the first request, `500@30s`, given again for each change; without it there is no bound
    #[arg(long, value_name = "COUNT[@DURATION]", value_parser = capacity_step)]
    pub capacity: Vec<CapacityStep>,

    /// Fraction of good requests answered 500 or 503
    #[arg(long, value_name = "FRACTION", default_value = "0", value_parser = fraction)]
    pub error_rate: f64,

    /// Fraction of good requests answered 429
    #[arg(long, value_name = "FRACTION", default_value = "0", value_parser = fraction)]
    pub throttle_rate: f64,

    /// Good requests in a second, but for mail; further ones are answered 429. What is not used is kept for --rate-burst
    #[arg(long, value_name = "COUNT")]
    pub rate_limit: Option<NonZeroU32>,

    /// Milliseconds whose unused requests are kept by --rate-limit; 0 has any two requests keep their distance
    #[arg(long, value_name = "MILLISECONDS", default_value = "1000")]
    pub rate_burst: u32,

    /// Seconds in the Retry-After header of 429 and 503
    #[arg(long, value_name = "SECONDS", default_value = "1")]
    pub retry_after: u32,

    /// Fraction of recipients that are gone: always the same ones, see `is_dead`
    #[arg(long, value_name = "FRACTION", default_value = "0", value_parser = fraction)]
    pub dead_tokens: f64,

    /// Fraction of good requests that are processed and never answered: the stream is reset
    /// (HTTP/2) or the connection closed (HTTP/1.1)
    #[arg(long, value_name = "FRACTION", default_value = "0", value_parser = fraction)]
    pub drop_rate: f64,

    /// Leave requests to this recipient unanswered: processed, recorded, and kept waiting
    #[arg(long, value_name = "RECIPIENT")]
    pub silent_to: Option<String>,

    /// Fraction of good requests that are processed and end their whole connection, unanswered
    #[arg(long, value_name = "FRACTION", default_value = "0", value_parser = fraction)]
    pub disconnect_rate: f64,

    /// Fraction of good requests refused unprocessed: the stream is reset with `REFUSED_STREAM`
    /// (HTTP/2) or the connection closed (HTTP/1.1)
    #[arg(long, value_name = "FRACTION", default_value = "0", value_parser = fraction)]
    pub refuse_rate: f64,

    /// Requests after which a connection is shut down (GOAWAY, or `Connection: close`)
    #[arg(long, value_name = "COUNT")]
    pub goaway_every: Option<NonZeroU64>,

    /// Make that GOAWAY abrupt: streams after the last counted one are not processed, and the
    /// connection is closed
    #[arg(long, requires = "goaway_every")]
    pub goaway_abrupt: bool,

    /// Requests after which everything is answered 503 for a while
    #[arg(long, value_name = "COUNT")]
    pub outage_after: Option<u64>,

    /// How long that outage lasts
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub outage_for: Duration,

    /// Leave requests within the outage unanswered, but for mail: processed, recorded, and kept waiting
    #[arg(long, requires = "outage_after")]
    pub outage_silent: bool,

    /// Seed of the dice: the same requests in the same order meet the same faults
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    pub seed: u64,
}

impl Default for SimulatorOptions {
    #[expect(clippy::expect_used, reason = "every flag has a default; a test builds this value")]
    fn default() -> Self {
        let command = Self::augment_args(Command::new("provider-sim"));
        let matches = command.get_matches_from(["provider-sim"]);
        Self::from_arg_matches(&matches).expect("every flag has a default")
    }
}

fn fraction(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "write a fraction such as 0.05".to_owned())?;
    if (0.0..=1.0).contains(&value) { Ok(value) } else { Err("must be within 0 and 1".to_owned()) }
}

fn login(text: &str) -> Result<String, String> {
    let is_good = text
        .split_once(':')
        .is_some_and(|(user, password)| !user.is_empty() && !password.is_empty());
    if is_good {
        Ok(text.to_owned())
    } else {
        Err("write a name and a password such as user:secret".to_owned())
    }
}

/// Parses `500`, and `500@30s`.
fn capacity_step(text: &str) -> Result<CapacityStep, String> {
    let (count, after) = text.split_once('@').unwrap_or((text, "0s"));
    let count = count.parse().ok().filter(|count| *count > 0);
    let count = count.ok_or("write a number of requests such as 500, or 500@30s")?;
    Ok(CapacityStep { count, after: duration(after)? })
}

/// Parses `250us`, `1.5ms`, `2s`, `10m`, `1h`.
fn duration(text: &str) -> Result<Duration, String> {
    let hint = || "write a number and a unit of us, ms, s, m or h, such as 50ms".to_owned();
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit_s = match text.strip_prefix(digits).ok_or_else(hint)? {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(hint()),
    };
    let number: f64 = digits.trim().parse().map_err(|_| hint())?;
    Duration::try_from_secs_f64(number * unit_s).map_err(|_| hint())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_has_a_default() {
        let options = SimulatorOptions::default();
        assert!(options.apns.ip().is_loopback() && options.webhook.ip().is_loopback());
        assert_eq!(options.max_streams.get(), 1000);
        assert_eq!(options.faults.latency, Duration::ZERO);
    }

    #[test]
    fn durations_need_a_number_and_a_unit() {
        let check = |text, expect| assert_eq!(duration(text).ok(), expect, "{text}");
        check("250us", Some(Duration::from_micros(250)));
        check("1.5ms", Some(Duration::from_micros(1500)));
        check("2 s", Some(Duration::from_secs(2)));
        check("1h", Some(Duration::from_hours(1)));
        check("5", None);
        check("ms", None);
        check("-1s", None);
        check("1 fortnight", None);
    }

    #[test]
    fn a_capacity_is_a_number_and_a_time() {
        let check = |text: &str, expect: Option<(usize, u64)>| {
            let step = capacity_step(text).ok().map(|step| (step.count, step.after));
            let expect = expect.map(|(count, secs)| (count, Duration::from_secs(secs)));
            assert_eq!(step, expect, "{text}");
        };
        check("500", Some((500, 0)));
        check("500@30s", Some((500, 30)));
        check("0", None);
        check("500@", None);
        check("many", None);
    }

    #[test]
    fn fractions_lie_within_zero_and_one() {
        let check = |text, expect| assert_eq!(fraction(text).ok(), expect, "{text}");
        check("0.25", Some(0.25));
        check("1", Some(1.0));
        check("1.01", None);
        check("-0.1", None);
        check("NaN", None);
        check("half", None);
    }
}
