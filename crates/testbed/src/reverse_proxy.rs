//! Reverse proxies in front of a server under test: nginx and `HAProxy`, by the configuration files of the documentation.

use std::net::TcpStream;
use std::path::Path;

use anyhow::{Result, ensure};
use rustix::process::Signal;

use crate::find;
use crate::keeper::Keeper;

/// Which proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReverseProxyProgram {
    /// nginx.
    Nginx,
    /// `HAProxy`.
    Haproxy,
}

/// A running proxy.
#[derive(Debug)]
pub struct ReverseProxy {
    keeper: Keeper,
    port: u16,
}

const PROXY: &str = "reverse-proxy";

// === impl ReverseProxyProgram ===

impl ReverseProxyProgram {
    const fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
        }
    }

    /// The parts of a configuration that are of the machine it runs on, and what stands for them here.
    fn changes(self, directory: &Path) -> Vec<(String, String)> {
        let place = |name: &str| directory.join(name).display().to_string();
        let pairs = match self {
            Self::Nginx => {
                let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
                    .map(|kind| format!("{kind}_temp_path {};", place(kind)))
                    .join("\n");
                vec![
                    ("user www-data;", "user root;\ndaemon off;".to_owned()),
                    ("/run/nginx.pid", place("pid")),
                    ("http {", format!("http {{\n{temporary}")),
                ]
            }
            Self::Haproxy => {
                vec![("    user haproxy\n", String::new()), ("    group haproxy\n", String::new())]
            }
        };
        pairs.into_iter().map(|(from, to)| (from.to_owned(), to)).collect()
    }
}

// === impl ReverseProxy ===

impl ReverseProxy {
    /// Starts `program` with a whole `configuration`, in which `changes` put addresses and files of the test in the place of those that
    /// it names: `:443` is to become an address with `port`.
    ///
    /// # Errors
    /// When the program is missing, when the configuration has nothing to change by one of `changes`, or when it does not start; its log
    /// is quoted.
    pub fn start(
        program: ReverseProxyProgram,
        configuration: &str,
        changes: &[(&str, &str)],
        port: u16,
    ) -> Result<Self> {
        let mut keeper = Keeper::new("belfry-proxy-", Signal::TERM)?;
        let directory = keeper.directory().to_owned();
        let own = program.changes(&directory);
        let own = own.iter().map(|(from, to)| (from.as_str(), to.as_str()));
        let mut text = configuration.to_owned();
        for (from, to) in own.chain(changes.iter().copied()) {
            ensure!(text.contains(from), "the configuration does not have {from:?}");
            text = text.replace(from, to);
        }
        let file = directory.join("configuration");
        std::fs::write(&file, text)?;
        let mut command = find::command_of(&find::unpacked(program.name())?);
        match program {
            ReverseProxyProgram::Nginx => command.arg("-p").arg(&directory).arg("-c").arg(&file),
            ReverseProxyProgram::Haproxy => command.arg("-f").arg(&file),
        };
        keeper.start(PROXY, &mut command)?;
        keeper.await_ready(PROXY, || TcpStream::connect(("127.0.0.1", port)).is_ok())?;
        Ok(Self { keeper, port })
    }

    /// Its port of 127.0.0.1.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The file with its output.
    pub fn log(&self) -> std::path::PathBuf {
        self.keeper.log(PROXY)
    }
}
