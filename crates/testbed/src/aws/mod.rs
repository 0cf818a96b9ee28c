//! Servers that stand for AWS: `ElasticMQ` speaks SQS, moto SQS, Kinesis and STS. `scripts/fetch-aws-servers.sh` fetches both.

mod elasticmq;
mod moto;

pub use elasticmq::{ElasticMq, shared_url as shared_sqs_url};
pub use moto::{Moto, shared_url as shared_moto_url};

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use crate::find::{self, NotInstalled};

/// Where the script has put `server`, which has `file` in it.
fn place(server: &str, file: &str) -> Result<PathBuf> {
    let folder = find::build_folder()?.join("servers").join(server);
    if !folder.join(file).exists() {
        let looked_in = folder.to_string_lossy();
        return Err(NotInstalled::new(server, &looked_in, "scripts/fetch-aws-servers.sh").into());
    }
    Ok(folder)
}

/// True if what listens on `port` answers a request in HTTP, whatever it says.
fn answers(port: u16) -> Result<bool> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(stream, "GET / HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n\r\n")?;
    let mut status = String::new();
    BufReader::new(stream).read_line(&mut status)?;
    Ok(status.starts_with("HTTP/1.1 "))
}
