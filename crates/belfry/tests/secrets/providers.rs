//! Providers that repeat in their complaints what they were told, and keep it for the test.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A server in this process. It serves until the test ends.
pub(crate) struct Parrot {
    pub(crate) address: SocketAddr,
    heard: Arc<Mutex<String>>,
}

// === impl Parrot ===

impl Parrot {
    /// Answers every HTTP request with 400 and the values of its headers.
    pub(crate) fn http() -> Self {
        Self::start(|stream, heard| {
            let mut input = BufReader::new(stream);
            while let Some(head) = read_head(&mut input) {
                let values: Vec<&str> =
                    head.lines().filter_map(|line| Some(line.split_once(": ")?.1)).collect();
                heard.lock().unwrap().push_str(&head);
                let body = format!("you said {}", values.join(" "));
                let length = body.len();
                let head = "HTTP/1.1 400 Bad Request\r\ncontent-length";
                write!(&*stream, "{head}: {length}\r\n\r\n{body}").ok()?;
            }
            None
        })
    }

    /// Refuses every login for now, in the words of the login; with `PLAIN`. After one with `XOAUTH2` it takes mail, and
    /// refuses each for now, in the same words.
    pub(crate) fn smtp() -> Self {
        Self::start(|stream, heard| {
            let mut input = BufReader::new(stream);
            let say = |words: &str| write!(&*stream, "{words}\r\n").ok();
            let mut login = String::new();
            say("220 parrot")?;
            loop {
                let mut line = String::new();
                input.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
                heard.lock().unwrap().push_str(&line);
                let line = line.trim_end();
                match line.get(..4).unwrap_or_default() {
                    "EHLO" => say("250-parrot\r\n250 AUTH PLAIN XOAUTH2")?,
                    "AUTH" if line.contains("XOAUTH2") => {
                        line.clone_into(&mut login);
                        say("235 2.7.0 welcome")?;
                    }
                    "AUTH" => say(&format!("454 4.7.0 cannot check {line}"))?,
                    "DATA" => {
                        say("354 go on")?;
                        let mut mail = String::new();
                        while !mail.ends_with("\r\n.\r\n") {
                            input.read_line(&mut mail).ok().filter(|bytes| *bytes > 0)?;
                        }
                        heard.lock().unwrap().push_str(&mail);
                        say(&format!("451 4.3.0 not now, {login}"))?;
                    }
                    "QUIT" => return say("221 bye"),
                    _ => say("250 ok")?,
                }
            }
        })
    }

    /// Everything it was told.
    pub(crate) fn heard(&self) -> String {
        self.heard.lock().unwrap().clone()
    }

    fn start(
        serve: impl Fn(&TcpStream, &Mutex<String>) -> Option<()> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let heard = Arc::new(Mutex::new(String::new()));
        let (serve, hearing) = (Arc::new(serve), Arc::clone(&heard));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (serve, hearing) = (Arc::clone(&serve), Arc::clone(&hearing));
                std::thread::spawn(move || serve(&stream.unwrap(), &hearing));
            }
        });
        Self { address, heard }
    }
}

/// The head of a request, whose body is read and forgotten.
fn read_head(input: &mut impl BufRead) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        input.read_line(&mut head).ok().filter(|bytes| *bytes > 0)?;
    }
    let lower = head.to_ascii_lowercase();
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: u64 = length.map_or(0, |length| length.parse().unwrap());
    std::io::copy(&mut input.take(length), &mut std::io::sink()).ok()?;
    Some(head)
}
