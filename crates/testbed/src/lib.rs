//! Real servers and broken links for tests.
//!
//! Every server is a process of its own, on a free port of the loopback interface and in a directory of its own under
//! the temporary directory. It ends with the process that started it, however that one ends, and its directory goes
//! with it. Nothing here needs more than the distribution's packages (`scripts/setup-servers.sh` installs them, and unpacks
//! those that would replace what the machine has); a server that is missing is an error, never a reason to skip a test. Only a
//! Go toolchain and a JDK may be absent.
//!
//! - [`postgres`]: a cluster with password authentication, and a database of its own for each test.
//! - [`rabbitmq`], [`nats`] and [`kafka`]: brokers that can be killed, started again, and wiped.
//! - [`aws`]: `ElasticMQ` and moto, for SQS and Kinesis.
//! - [`mail`]: Postfix and its sink, `OpenSMTPD`, Exim.
//! - [`http2`]: HTTP/2 servers over TLS: nghttpd, nginx, `HAProxy`, Node.js, Go, Netty.
//! - [`reverse_proxy`]: nginx and `HAProxy` in front of a server under test.
//! - [`promtool`]: a judge of alerts.
//! - [`hpack`]: header blocks by a codec of others.
//! - [`proxy`]: a link that can be cut, frozen, half open, or cut at an exact byte.
//! - [`disk`]: a small file system that a test fills up.
//! - [`keeper`]: what ends the servers when their owner is gone.
//!
//! Tests that need a server but do not break it share one for each process: [`postgres::shared`],
//! [`rabbitmq::shared_url`], [`nats::shared_url`], [`kafka::shared_url`], [`aws::shared_sqs_url`], [`aws::shared_moto_url`]. Set
//! `BELFRY_TEST_POSTGRES_URL`, `BELFRY_TEST_RABBITMQ_URL`, `BELFRY_TEST_NATS_URL` or `BELFRY_TEST_KAFKA_URL` to share a running one
//! instead. `cargo run -p testbed -- postgres rabbitmq nats kafka` starts
//! servers for a session at the keyboard.

pub mod aws;
pub mod disk;
pub mod hpack;
pub mod http2;
pub mod kafka;
pub mod keeper;
pub mod mail;
pub mod nats;
pub mod otlp;
pub mod postgres;
pub mod promtool;
pub mod proxy;
pub mod rabbitmq;
pub mod reverse_proxy;

mod find;

pub use aws::{ElasticMq, Moto};
pub use disk::{DiskNamespace, SmallDisk};
pub use find::{NotInstalled, free_port, program as find_program};
pub use http2::{Http2Limits, Http2Program, Http2Server, ServerIdentity};
pub use kafka::Kafka;
pub use mail::{Exim, OpenSmtpd, Postfix, SmtpSink};
pub use nats::Nats;
pub use otlp::OtlpReceiver;
pub use postgres::{Database, PostgresOptions, PostgresServer};
pub use proxy::{Direction, Proxy};
pub use rabbitmq::RabbitMq;
pub use reverse_proxy::{ReverseProxy, ReverseProxyProgram};

use std::sync::atomic::{AtomicU64, Ordering};

/// A name that no other test has, in this run or another: lower-case letters, digits and `_`, at most 40 characters.
/// For databases, queues, streams.
pub fn unique_prefix() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let micros = flow::Clock::system().wall().as_micros();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("t{:x}_{micros:x}_{number}", std::process::id())
}

/// Reads the variable that names a running server.
#[expect(clippy::disallowed_methods, reason = "tests have no configuration but the environment")]
fn running_server(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|url| !url.is_empty())
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_two_prefixes_are_equal_and_each_is_a_plain_name() {
        let (first, second) = (super::unique_prefix(), super::unique_prefix());
        assert_ne!(first, second);
        assert!(first.len() <= 40, "{first}");
        assert!(first.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'));
    }
}
