//! nghttpd, the server of nghttp2: it serves files.

use std::ffi::OsString;
use std::fs::{self, File};

use anyhow::Result;

use super::{Http2Limits, LENGTHS, ServerPlace};
use crate::find;

pub(super) fn command_line(place: &ServerPlace, limits: Http2Limits) -> Result<Vec<OsString>> {
    Http2Limits::refuse(limits.requests, "the requests of a connection")?;
    let files = place.file("files");
    fs::create_dir_all(files.join("length"))?;
    for length in 0..=LENGTHS {
        let file = File::create(files.join("length").join(length.to_string()))?;
        file.set_len(u64::try_from(length)?)?;
    }
    fs::create_dir_all(files.join("trailers"))?;
    File::create(files.join("trailers/0"))?.set_len(100_000)?;
    let program = find::program("nghttpd", &[], &["/usr/sbin", "/usr/bin"])?;
    let mut line: Vec<OsString> = vec![program.into()];
    // Verbose, so that it notes requests.
    let arguments = ["-v", "--address=127.0.0.1", "--padding=200", "--trailer=x-end: yes"];
    line.extend(arguments.map(OsString::from));
    line.push(format!("--htdocs={}", files.display()).into());
    if let Some(streams) = limits.streams {
        line.push(format!("--max-concurrent-streams={streams}").into());
    }
    if let Some(bytes) = limits.window_bytes {
        // It takes powers of two, and makes them one less.
        line.push(format!("--window-bits={}", bytes.ilog2()).into());
    }
    if let Some(bytes) = limits.table_bytes {
        line.push(format!("--header-table-size={bytes}").into());
        line.push(format!("--encoder-header-table-size={bytes}").into());
    }
    line.push(place.port.to_string().into());
    line.extend(["key.pem", "certificate.pem"].map(|name| place.file(name).into()));
    Ok(line)
}
