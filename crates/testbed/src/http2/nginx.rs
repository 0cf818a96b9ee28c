//! nginx. What is to read whole bodies is passed on to a second server in it, which ends with it.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File};

use anyhow::Result;

use super::{HELD, Http2Limits, LARGE_BYTES, ServerPlace};
use crate::find::{self, unpacked};

pub(super) fn command_line(place: &ServerPlace, limits: Http2Limits) -> Result<Vec<OsString>> {
    Http2Limits::refuse(limits.table_bytes, "the table of header fields")?;
    let files = place.file("files");
    for (name, bytes) in [("large", LARGE_BYTES), ("trailers", 100_000)] {
        fs::create_dir_all(files.join(name))?;
        File::create(files.join(name).join("0"))?.set_len(u64::try_from(bytes)?)?;
    }
    let text = configuration(place, limits)?;
    let mut line: Vec<OsString> = vec![unpacked("nginx")?.into()];
    line.extend([OsString::from("-c"), place.write("nginx.conf", &text)?.into()]);
    line.extend([OsString::from("-p"), place.directory.clone().into()]);
    Ok(line)
}

fn configuration(place: &ServerPlace, limits: Http2Limits) -> Result<String> {
    let mut settings = String::new();
    if let Some(streams) = limits.streams {
        writeln!(settings, "http2_max_concurrent_streams {streams};")?;
    }
    if let Some(bytes) = limits.window_bytes {
        writeln!(settings, "http2_body_preread_size {bytes};")?;
    }
    // By its own default a thousand.
    writeln!(settings, "keepalive_requests {};", limits.requests.unwrap_or(1_000_000))?;
    let inner = find::free_port()?;
    let mut paths = String::new();
    for kind in ["body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        let setting = if kind == "body" { "client_body" } else { kind };
        writeln!(paths, "{setting}_temp_path {}/temporary-{kind};", place.directory.display())?;
    }
    Ok(format!(
        r#"
daemon off;
user root;
worker_processes 1;
pid {directory}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 4096; }}
http {{
    {paths}
    log_format path 'request: $request_uri';
    access_log /dev/stdout path;
    client_body_buffer_size 256k;
    server {{
        listen 127.0.0.1:{inner};
        access_log off;
        add_header x-length $content_length always;
        return 200;
    }}
    server {{
        listen 127.0.0.1:{port} ssl http2 backlog=4096;
        ssl_certificate {directory}/certificate.pem;
        ssl_certificate_key {directory}/key.pem;
        root {directory}/files;
        {settings}
        # It does not tell a connection to go that is being made while it begins to end, and waits for it to fall idle.
        keepalive_timeout 2s;
        add_header x-path $request_uri always;
        add_header x-number $http_x_number always;
        add_header x-token $http_x_token always;
        location /echo/ {{ proxy_pass http://127.0.0.1:{inner}; }}
        location /early/ {{ return 200; }}
        location /held/ {{
            auth_delay 1s;
            auth_basic "held";
            auth_basic_user_file {directory}/nobody;
            error_page 401 ={held} @held;
        }}
        location @held {{ return {held}; }}
        location /large/ {{ error_page 405 =200 $uri; }}
        location /trailers/ {{ error_page 405 =200 $uri; add_trailer x-end yes; }}
    }}
}}
"#,
        directory = place.directory.display(),
        port = place.port,
        held = HELD,
    ))
}
