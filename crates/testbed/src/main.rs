//! Servers for a session at the keyboard: `testbed [postgres] [rabbitmq] [nats] [kafka]`.
//!
//! Prints a line `export BELFRY_TEST_..._URL=...` for each, and ends them when its standard input ends (Ctrl-D) or it
//! is stopped in any other way.

use std::io::{Read as _, Write as _};

use anyhow::{Result, bail};
use testbed::{Kafka, Nats, PostgresServer, RabbitMq};

/// Held so that it runs.
#[derive(Debug)]
#[expect(dead_code, reason = "a server runs as long as its handle is there")]
enum ServerChoice {
    Postgres(PostgresServer),
    RabbitMq(RabbitMq),
    Nats(Nats),
    Kafka(Kafka),
}

fn main() -> Result<()> {
    let mut servers = Vec::new();
    for name in std::env::args().skip(1) {
        let (variable, url, server) = match name.as_str() {
            "postgres" => {
                let server = PostgresServer::start()?;
                ("POSTGRES", server.url(), ServerChoice::Postgres(server))
            }
            "rabbitmq" => {
                let server = RabbitMq::start()?;
                ("RABBITMQ", server.url(), ServerChoice::RabbitMq(server))
            }
            "nats" => {
                let server = Nats::start()?;
                ("NATS", server.url(), ServerChoice::Nats(server))
            }
            "kafka" => {
                let server = Kafka::start()?;
                ("KAFKA", server.url(), ServerChoice::Kafka(server))
            }
            _other => bail!("usage: testbed [postgres] [rabbitmq] [nats] [kafka]"),
        };
        writeln!(std::io::stdout(), "export BELFRY_TEST_{variable}_URL={url}")?;
        servers.push(server);
    }
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
