//! The pool: turns, and the connections that it opens.

use super::*;
use crate::endpoint::Endpoint;
use crate::guard::Guard;
use crate::http2::Priming;
use crate::http2::stream::Http2Stream;
use crate::http2::stream_queue::{STREAM_WAIT, StreamQueue};
use crate::tcp::{Anywhere, Reach};
use crate::tls;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

fn pool(origin: &str, reach: Arc<dyn Reach>) -> Http2Pool {
    pool_of(origin, reach, 1)
}

fn pool_of(origin: &str, reach: Arc<dyn Reach>, connections_max: usize) -> Http2Pool {
    let dial = Dial {
        provider: "test",
        origin: Endpoint::parse(origin).unwrap().origin,
        tls: tls::client(None, &[b"h2"], None).unwrap(),
        reach,
        priming: Priming::OneStream,
        read_fields: &[],
    };
    let clock = Clock::starting_at(Duration::ZERO);
    Http2Pool::new(dial, connections_max, clock, 1)
}

/// Gives it connections of one stream each, as they are until the peer says how many.
fn connect(pool: &Http2Pool, connections: usize) {
    for _ in 0..connections {
        pool.shared.add(Rc::new(Connection::new(Priming::Unprimed, &[], pool.shared.clock)));
    }
}

/// A stream for a request that waits.
async fn stream(pool: &Http2Pool, priority: Priority) -> Result<Http2Stream, Unsent<()>> {
    let mut queue = StreamQueue::new(pool, priority);
    queue.push((), pool.shared.clock.monotonic());
    poll_fn(|context| queue.poll_next(context)).await.2
}

#[tokio::test]
async fn an_origin_that_must_not_be_reached_is_refused_at_once() {
    let pool = pool("https://127.0.0.1:1", Arc::new(Guard::new(Vec::new())));
    let local = tokio::task::LocalSet::new();
    let asked = async {
        let ask = async |priority| {
            let refused = stream(&pool, priority).await;
            assert!(matches!(refused, Err(Unsent::Forbidden(_))), "{refused:?}");
        };
        tokio::join!(ask(Priority::Normal), ask(Priority::Bulk));
        ask(Priority::Normal).await;
        let mut queue = StreamQueue::<u8>::new(&pool, Priority::Normal);
        let now = pool.shared.clock.monotonic();
        queue.push(1, now);
        queue.push(2, now);
        for expect in [1, 2] {
            let (item, _, found) = poll_fn(|context| queue.poll_next::<()>(context)).await;
            assert!(matches!(found, Err(Unsent::Forbidden(_))), "{found:?}");
            assert_eq!(item, expect);
            let connecting = pool.shared.connecting.borrow().len();
            assert_eq!(connecting, 0, "to all of them the answer is the same");
        }
        assert!(queue.is_empty());
    };
    local.run_until(asked).await;
}

#[tokio::test]
async fn a_request_waits_behind_others_only_while_streams_are_too_few_for_all() {
    let pool = pool("https://127.0.0.1:1", Arc::new(Anywhere));
    connect(&pool, 3);
    let take = |priority| StreamQueue::<u8>::new(&pool, priority).take();
    let wait = |requests| {
        let mut queue = StreamQueue::<u8>::new(&pool, Priority::Normal);
        (0..requests).for_each(|item| queue.push(item, pool.shared.clock.monotonic()));
        queue
    };
    let two = wait(2);
    assert!(take(Priority::Normal).is_some() && take(Priority::Bulk).is_some());
    let three = wait(1);
    assert!(take(Priority::Normal).is_none() && take(Priority::Bulk).is_none());
    let urgent = take(Priority::Urgent).unwrap();
    drop(two);
    let normal = take(Priority::Normal).unwrap();
    assert!(take(Priority::Normal).is_none(), "the last is for the other");
    drop((urgent, normal, three));
}

/// The items of `queue` that are given streams now, and their streams.
fn given(queue: &mut StreamQueue<'_, u8>) -> (Vec<u8>, Vec<Http2Stream>) {
    let mut context = Context::from_waker(Waker::noop());
    std::iter::from_fn(|| match queue.poll_next::<()>(&mut context) {
        Poll::Ready((item, _, found)) => Some((item, found.unwrap())),
        Poll::Pending => None,
    })
    .unzip()
}

#[tokio::test]
async fn requests_of_a_caller_have_all_free_streams_in_its_turn() {
    let pool = pool("https://127.0.0.1:1", Arc::new(Anywhere));
    let now = pool.shared.clock.monotonic();
    connect(&pool, 3);
    let queue = |priority| {
        let mut queue = StreamQueue::<u8>::new(&pool, priority);
        queue.push(1, now);
        queue.push(2, now);
        queue
    };
    let taken = [(); 3].map(|()| Http2Stream::take(&pool.shared, 0).unwrap());
    let mut queues = [(); 2].map(|()| queue(Priority::Normal));
    for queue in &mut queues {
        assert!(given(queue).0.is_empty());
    }
    let [mut first, mut second] = queues;
    let [stream, other, another] = taken;
    drop(stream);
    let (items, of_first) = given(&mut first);
    assert_eq!(items, [1]);
    drop((other, another));
    let (items, of_second) = given(&mut second);
    assert_eq!(items, [1, 2], "both streams that are free");
    assert!(given(&mut first).0.is_empty());
    let mut urgent = queue(Priority::Urgent);
    assert!(given(&mut urgent).0.is_empty());
    drop((of_first, of_second));
    assert_eq!(given(&mut urgent).0, [1, 2]);
    assert_eq!(given(&mut first).0, [2], "a turn is passed on");
    assert_eq!(pool.shared.lines.before(Priority::Bulk), 0);
}

/// A second connection that is refused says nothing about the streams of the first.
#[tokio::test]
async fn a_request_that_is_woken_for_a_stream_has_it_though_a_connect_has_failed_for_good() {
    let pool = pool("https://127.0.0.1:1", Arc::new(Anywhere));
    connect(&pool, 1);
    let taken = Http2Stream::take(&pool.shared, 0).unwrap();
    let mut queue = StreamQueue::<u8>::new(&pool, Priority::Normal);
    let now = pool.shared.clock.monotonic();
    queue.push(1, now);
    queue.push(2, now);
    assert!(given(&mut queue).0.is_empty());
    pool.shared.failure.replace(Some(ConnectFailure::NotSpoken("no h2".to_owned())));
    drop(taken);
    let mut next = || queue.poll_next::<()>(&mut Context::from_waker(Waker::noop()));
    let Poll::Ready((1, _, Ok(_stream))) = next() else { panic!("the stream is free") };
    assert!(matches!(next(), Poll::Ready((2, _, Err(Unsent::NotSpoken(_))))));
}

#[tokio::test(start_paused = true)]
async fn each_request_of_a_caller_waits_for_its_own_time() {
    let pool = pool("https://127.0.0.1:1", Arc::new(Anywhere));
    let clock = pool.shared.clock;
    let mut queue = StreamQueue::<u8>::new(&pool, Priority::Normal);
    let begun = clock.monotonic();
    queue.push(1, begun);
    queue.push(2, begun + Duration::from_secs(1));
    let local = tokio::task::LocalSet::new();
    let asked = async {
        for item in [1, 2] {
            let (of, _, found) = poll_fn(|context| queue.poll_next::<()>(context)).await;
            assert!(matches!(found, Err(Unsent::Unreachable(_))), "{found:?}");
            let waited = (clock.monotonic() - begun).as_secs();
            assert_eq!((of, waited), (item, STREAM_WAIT.as_secs() + u64::from(item) - 1));
        }
    };
    local.run_until(asked).await;
    assert!(queue.is_empty());
    assert_eq!(pool.shared.lines.before(Priority::Bulk), 0);
}

#[tokio::test]
async fn connections_that_are_opened_double_while_there_are_requests_for_them() {
    let pool = pool_of("https://127.0.0.1:1", Arc::new(Anywhere), 8);
    let state = &*pool.shared;
    let local = tokio::task::LocalSet::new();
    let opened = |settled: usize, requests: usize| {
        state.connections.take();
        connect(&pool, settled);
        state.connections.borrow().iter().for_each(|connection| connection.take_stream());
        let mut queue = StreamQueue::new(&pool, Priority::Normal);
        (0..requests).for_each(|item| queue.push(item, state.clock.monotonic()));
        while state.may_grow() {
            let connecting = tokio::task::spawn_local(std::future::pending::<()>());
            state.connecting.borrow_mut().push(connecting.abort_handle());
        }
        state.connecting.take().len()
    };
    let counted = async {
        let check = |settled, requests, expect| {
            assert_eq!(opened(settled, requests), expect, "{settled} and {requests}");
        };
        check(0, 0, 0);
        // An origin that has not answered yet.
        check(0, 100, 1);
        check(1, 100, 1);
        check(2, 100, 2);
        check(3, 100, 3);
        // As many as there are streams to be needed, of one a connection.
        check(4, 2, 2);
        // `connections_max`.
        check(6, 100, 2);
        check(8, 100, 0);
    };
    local.run_until(counted).await;
    state.connections.take();
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_is_closed_waits_for_no_connection_that_may_come() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = format!("https://{}", listener.local_addr().unwrap());
    let local = tokio::task::LocalSet::new();
    for origin in [&*silent, "https://127.0.0.1:1"] {
        let pool = pool(origin, Arc::new(Anywhere));
        let clock = pool.shared.clock;
        let begun = clock.monotonic();
        let waited = || (clock.monotonic() - begun).as_secs();
        let asked = async {
            let nothing = stream(&pool, Priority::Normal).await;
            assert!(matches!(nothing, Err(Unsent::Unreachable(_) | Unsent::Full)), "{nothing:?}");
            assert_eq!(waited(), STREAM_WAIT.as_secs());
            pool.close().await;
            assert_eq!(waited(), STREAM_WAIT.as_secs(), "it waited on");
        };
        local.run_until(asked).await;
    }
}
