//! A request is asked about right before it is sent, over whichever connection.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use notification::Priority;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::endpoint::Endpoint;
use crate::tcp::Anywhere;

/// Lets a request be sent so many times.
#[derive(Debug)]
struct Times(Cell<u32>);

#[derive(Debug, PartialEq, Eq)]
struct Over;

impl Permit for &Times {
    type Refusal = Over;

    fn priority(self) -> Priority {
        Priority::Normal
    }

    fn is_at_most_once(self) -> bool {
        false
    }

    async fn begin(self) -> Result<(), Over> {
        self.0.set(self.0.get().checked_sub(1).ok_or(Over)?);
        Ok(())
    }
}

fn request() -> Request<Full<Bytes>> {
    Request::post("/").header("host", "test").body(Full::new(Bytes::from_static(b"x"))).unwrap()
}

/// Answers each request of a connection, and notes on which connection it came.
async fn answer(mut stream: TcpStream, number: usize, seen: Rc<RefCell<Vec<usize>>>) {
    let mut bytes = [0; 512];
    while stream.read(&mut bytes).await.is_ok_and(|read| read > 0) {
        seen.borrow_mut().push(number);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    }
}

#[tokio::test]
async fn a_request_over_a_kept_connection_is_asked_about_as_one_over_a_new_one() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let target = HttpTarget { origin: Endpoint::parse(&url).unwrap().origin, tls: 0 };
    let pool = Http1Pool::new(Arc::new(Anywhere), Vec::new(), Clock::starting_at(Duration::ZERO));
    let seen = Rc::new(RefCell::new(Vec::new()));
    let log = Rc::clone(&seen);
    let serve = async move {
        for number in 0.. {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::task::spawn_local(answer(stream, number, Rc::clone(&log)));
        }
    };
    let asked = async {
        tokio::task::spawn_local(serve);
        let ask = async |times: &Times| pool.exchange(times, &target, request()).await;
        let withheld = Failure::Unsent(Unsent::Withheld(Over));
        let times = Times(Cell::new(0));
        assert_eq!(ask(&times).await.unwrap_err(), withheld, "over a new connection");
        times.0.set(1);
        ask(&times).await.unwrap();
        assert_eq!(ask(&times).await.unwrap_err(), withheld, "over the one that was kept");
        times.0.set(1);
        ask(&times).await.unwrap();
        assert_eq!(*seen.borrow(), [1, 1], "it is kept all the same");
    };
    tokio::task::LocalSet::new().run_until(asked).await;
}
