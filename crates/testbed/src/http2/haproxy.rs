//! `HAProxy`, without a server behind it: it answers by its rules.

use std::ffi::OsString;
use std::fmt::Write as _;

use anyhow::Result;

use super::{HELD, Http2Limits, ServerPlace};
use crate::find::unpacked;

pub(super) fn command_line(place: &ServerPlace, limits: Http2Limits) -> Result<Vec<OsString>> {
    Http2Limits::refuse(limits.requests, "the requests of a connection")?;
    let mut settings = String::new();
    let mut set = |name: &str, value: Option<u32>| match value {
        Some(value) => writeln!(settings, "    tune.h2.{name} {value}"),
        None => Ok(()),
    };
    set("max-concurrent-streams", limits.streams)?;
    set("initial-window-size", limits.window_bytes)?;
    // Not below the default.
    set("header-table-size", limits.table_bytes)?;
    // It wants both in one file.
    let read = |name: &str| std::fs::read_to_string(place.file(name));
    let both = read("certificate.pem")? + &read("key.pem")?;
    let identity = place.write("identity.pem", &both)?;
    let fields =
        "hdr x-path %[path] hdr x-number %[req.hdr(x-number)] hdr x-token %[req.hdr(x-token)]";
    let text = format!(
        r#"
global
    log stdout format raw local0
{settings}
defaults
    mode http
    log global
    log-format "request: %[var(txn.path)]"
    timeout client 1m
    timeout http-request 1m
    timeout tarpit 1s
frontend judge
    bind 127.0.0.1:{port} ssl crt {identity} alpn h2 backlog 4096
    http-request set-var(txn.path) path
    http-request tarpit status {HELD} if {{ path_beg /held/ }}
    http-request wait-for-body time 1m if !{{ path_beg /early/ }}
    http-request return status 200 {fields}
"#,
        port = place.port,
        identity = identity.display(),
    );
    let configuration = place.write("haproxy.cfg", &text)?;
    Ok(vec![unpacked("haproxy")?.into(), "-f".into(), configuration.into()])
}
