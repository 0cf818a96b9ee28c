//! Floors: what a tool does that is made for nothing but one step, on the same machine in the same run.

use std::io::Read as _;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use testbed::SmtpSink;

use super::job::as_float;
use super::{Bench, missing};
use crate::process::RunningProcess;
use crate::report::Floor;

/// Connections of `h2load` to each of its threads, and streams of each.
const CONNECTIONS: usize = 4;
const STREAMS: usize = 250;
/// Bytes of an APNs body as the jobs send it, and of a bearer token.
const BODY: usize = 130;
const TOKEN: usize = 200;
/// Connections of `smtp-source`, and bytes of a mail's body.
const MAIL_CONNECTIONS: u64 = 16;
const MAIL_BODY: u64 = 100;
const LOOK_EVERY: Duration = Duration::from_millis(10);
const PATIENCE: Duration = Duration::from_secs(10);

/// The output of a program, and the processor time that it used.
#[derive(Debug)]
pub(super) struct EndedProgram {
    pub(super) said: String,
    pub(super) cpu: Duration,
}

/// `h2load` to `nghttpd` over TLS with requests like those of APNs; `Err` in words, where one of them is not installed.
///
/// # Errors
/// When one of them does not run.
pub(super) fn http2(bench: &Bench, requests: u64) -> Result<Result<Floor, String>> {
    let find = |program| testbed::find_program(program, &[], &["/usr/bin", "/usr/sbin"]);
    let (load, serve) = match (find("h2load"), find("nghttpd")) {
        (Ok(load), Ok(serve)) => (load, serve),
        (Err(error), _) | (_, Err(error)) => return missing("the floor of HTTP/2", error).map(Err),
    };
    bench.say("floor: h2load to nghttpd");
    let directory = bench.directory()?;
    let port = testbed::free_port()?;
    let _server = nghttpd(&serve, directory.path(), port)?;
    let threads = std::thread::available_parallelism()?.get();
    let body = directory.path().join("body");
    std::fs::write(&body, "x".repeat(BODY))?;
    let mut command = Command::new(load);
    command.args(["-t", &threads.to_string(), "-c", &(threads * CONNECTIONS).to_string()]);
    command.args(["-m", &STREAMS.to_string(), "-n", &requests.to_string(), "-d"]).arg(&body);
    command.args(["-H", &format!("authorization: bearer {}", "0".repeat(TOKEN))]);
    command.args(["-H", "apns-topic: org.belfry.demo", "-H", "apns-push-type: alert"]);
    command.arg(format!("https://127.0.0.1:{port}/0"));
    let EndedProgram { said, cpu } = run(command)?;
    ensure!(said.contains(&format!("{requests} succeeded")), "h2load: not all succeeded: {said}");
    // "finished in 1.02s, 98039.22 req/s, 9.6MB/s"
    let rate = said.lines().find_map(|line| line.strip_prefix("finished in "));
    let rate = rate.and_then(|line| line.split(", ").nth(1)?.strip_suffix(" req/s"));
    let rate: f64 = rate.context("h2load says no rate")?.parse()?;
    Ok(Ok(Floor {
        tool: format!("h2load -t{threads} to nghttpd, both on these cores"),
        per_minute: Some(60.0 * rate),
        cpu_us_per_item: Some(cpu.as_secs_f64() * 1e6 / as_float(requests)),
    }))
}

/// `smtp-source` to `smtp-sink`, both of Postfix; `Err` in words, where they cannot be run.
///
/// # Errors
/// When `smtp-source` does not send all of its mails.
pub(super) fn smtp(bench: &Bench, mails: u64) -> Result<Result<Floor, String>> {
    bench.say("floor: smtp-source to smtp-sink");
    let sink = match SmtpSink::start() {
        Ok(sink) => sink,
        Err(error) => return Ok(Err(format!("SMTP is without a floor: {error:#}"))),
    };
    let clock = flow::Clock::system();
    let started = clock.monotonic();
    let EndedProgram { cpu, .. } = run(sink.source(mails, MAIL_CONNECTIONS, MAIL_BODY))?;
    let took = clock.monotonic().duration_since(started);
    Ok(Ok(Floor {
        tool: format!("smtp-source to smtp-sink, {MAIL_CONNECTIONS} connections"),
        per_minute: Some(60.0 * as_float(mails) / took.as_secs_f64()),
        cpu_us_per_item: Some(cpu.as_secs_f64() * 1e6 / as_float(mails)),
    }))
}

fn nghttpd(program: &Path, directory: &Path, port: u16) -> Result<RunningProcess> {
    let identity = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()])?;
    let file = |name: &str, text: &str| {
        let path = directory.join(name);
        std::fs::write(&path, text).map(|()| path)
    };
    let key = file("key.pem", &identity.signing_key.serialize_pem())?;
    let certificate = file("certificate.pem", &identity.cert.pem())?;
    file("0", "")?;
    let threads = std::thread::available_parallelism()?.get();
    let mut command = Command::new(program);
    command.args(["-a", "127.0.0.1", "-m", "1000", "-n", &threads.to_string(), "-d"]);
    command.arg(directory).arg(port.to_string()).arg(key).arg(certificate);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let server = RunningProcess::start(&mut command)?;
    let clock = flow::Clock::system();
    let started = clock.monotonic();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        ensure!(clock.monotonic().duration_since(started) < PATIENCE, "nghttpd does not start");
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(server)
}

/// Runs `command` to its end.
///
/// # Errors
/// When it does not start, or fails.
pub(super) fn run(mut command: Command) -> Result<EndedProgram> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut running = RunningProcess::start(&mut command)?;
    let mut said = String::new();
    running.take_output().context("stdout is piped")?.read_to_string(&mut said)?;
    let process = Pid::from_raw(i32::try_from(running.id())?).context("a process has a number")?;
    // The kernel keeps what it used until it is waited for.
    waitid(WaitId::Pid(process), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
    let cpu = running.usage()?.cpu;
    let status = running.wait()?;
    ensure!(status.success(), "{command:?} ended with {status}: {said}");
    Ok(EndedProgram { said, cpu })
}
