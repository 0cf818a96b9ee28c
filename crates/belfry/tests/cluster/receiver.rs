//! An application's endpoint: takes requests, answers as it is told, and remembers both.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use serde_json::Value;

use super::support::PATIENCE;

/// Serves until the test ends.
pub(crate) struct Receiver {
    address: SocketAddr,
    shared: Arc<Shared>,
}

/// State of the test's thread and of those that serve connections.
struct Shared {
    requests: Mutex<Requests>,
    /// A request came.
    came: Condvar,
}

/// How it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// With this status.
    Status(u16),
    /// Not at all: it closes the connection when it has read the request.
    Nothing,
    /// Not at all, and leaves the connection open.
    Hold,
}

/// The requests that came, in the order in which they came, each with the answer that it was given.
pub(crate) struct Requests {
    /// The answer to the next ones.
    answer: Answer,
    answered: Vec<(Answer, Value)>,
    /// The header `traceparent` of each, empty without one.
    traceparents: Vec<String>,
}

// === impl Receiver ===

impl Receiver {
    /// Answers 200.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (answered, traceparents) = (Vec::new(), Vec::new());
        let requests = Requests { answer: Answer::Status(200), answered, traceparents };
        let shared = Arc::new(Shared { requests: Mutex::new(requests), came: Condvar::new() });
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let shared = Arc::clone(&serving);
                std::thread::spawn(move || serve(&stream.unwrap(), &shared));
            }
        });
        Self { address, shared }
    }

    /// Its URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/suppressions", self.address)
    }

    /// Answers so from now on.
    pub(crate) fn answer(&self, answer: Answer) {
        self.requests().answer = answer;
    }

    /// Waits until `condition` holds; looks anew whenever a request comes.
    pub(crate) fn until(&self, what: &str, condition: impl Fn(&Requests) -> bool) {
        let missing = |requests: &mut Requests| !condition(requests);
        let came = self.shared.came.wait_timeout_while(self.requests(), PATIENCE, missing);
        let (_requests, waited) = came.unwrap();
        assert!(!waited.timed_out(), "{PATIENCE:?} have passed, and still not: {what}");
    }

    pub(crate) fn requests(&self) -> MutexGuard<'_, Requests> {
        self.shared.requests.lock().unwrap()
    }
}

// === impl Requests ===

impl Requests {
    /// How many of them were answered so.
    pub(crate) fn count(&self, answer: Answer) -> usize {
        self.answered.iter().filter(|(given, _)| *given == answer).count()
    }

    /// The header `traceparent` of each, empty without one.
    pub(crate) fn traceparents(&self) -> &[String] {
        &self.traceparents
    }

    /// Those that were taken.
    pub(crate) fn taken(&self) -> impl Iterator<Item = &Value> {
        let taken = self.answered.iter().filter(|(given, _)| *given == Answer::Status(200));
        taken.map(|(_, body)| body)
    }

    /// The changes that they told of, without what was repeated. Each request goes on where the one before ended, or is the one
    /// before once more.
    pub(crate) fn told(&self) -> Vec<Value> {
        let (mut told, mut position) = (Vec::new(), Value::from("0-0"));
        for request in self.taken() {
            if request["until"] == position {
                continue;
            }
            assert_eq!(request["after"], position, "something was passed over");
            position = request["until"].clone();
            let events = request["events"].as_array().unwrap();
            assert_eq!(events.last().unwrap()["position"], position);
            told.extend(events.iter().cloned());
        }
        told
    }
}

fn serve(stream: &TcpStream, shared: &Shared) {
    let (mut input, mut output) = (BufReader::new(stream.try_clone().unwrap()), stream);
    while let Some((body, traceparent)) = request(&mut input) {
        let answer = {
            let mut requests = shared.requests.lock().unwrap();
            let answer = requests.answer;
            requests.answered.push((answer, serde_json::from_slice(&body).unwrap()));
            requests.traceparents.push(traceparent);
            answer
        };
        shared.came.notify_all();
        match answer {
            Answer::Status(status) => {
                let head = format!("HTTP/1.1 {status} As Told\r\ncontent-length: 0\r\n\r\n");
                // Who asked may have been killed.
                if output.write_all(head.as_bytes()).is_err() {
                    return;
                }
            }
            Answer::Nothing => return,
            Answer::Hold => {
                // Until the other side is gone.
                let _gone = input.fill_buf();
                return;
            }
        }
    }
}

/// The body of the next request, and its `traceparent`; `None` when there is none.
fn request(input: &mut BufReader<TcpStream>) -> Option<(Vec<u8>, String)> {
    let (mut length, mut traceparent) = (None, String::new());
    loop {
        let mut line = String::new();
        if input.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            break;
        }
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        if name.eq_ignore_ascii_case("content-length") {
            length = Some(value.trim().parse().unwrap());
        }
        if name.eq_ignore_ascii_case("traceparent") {
            value.trim().clone_into(&mut traceparent);
        }
    }
    let mut body = vec![0; length.unwrap()];
    input.read_exact(&mut body).ok()?;
    Some((body, traceparent))
}
