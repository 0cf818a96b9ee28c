//! Node.js, whose HTTP/2 is nghttp2's with a flow control of its own.

use std::ffi::OsString;

use anyhow::Result;

use super::{Http2Limits, ServerPlace};
use crate::find;

const PROGRAM: &str = include_str!("node.js");

pub(super) fn command_line(place: &ServerPlace, limits: Http2Limits) -> Result<Vec<OsString>> {
    Http2Limits::refuse(limits.requests, "the requests of a connection")?;
    let program = find::program("node", &[], &["/usr/bin", "/usr/local/bin"])?;
    let mut line: Vec<OsString> = vec![program.into(), place.write("server.js", PROGRAM)?.into()];
    line.extend([place.directory.clone().into(), place.port.to_string().into()]);
    let limits = [limits.streams, limits.window_bytes, limits.table_bytes];
    line.extend(
        limits.map(|limit| limit.map_or_else(String::new, |limit| limit.to_string()).into()),
    );
    Ok(line)
}
