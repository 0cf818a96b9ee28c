//! The stories, and who hears which.

use std::ops::Range;

use net::ANSWER_BYTES;
use net::exchange::Reply;
use testbed::http2::{HELD, LARGE_BYTES};
use testbed::{Http2Limits, Http2Program};

use crate::account::{check_after_a_kill, check_all_answered};
use crate::client::{run, start};
use crate::samples::Sample;

const DEFAULTS: Http2Limits =
    Http2Limits { streams: None, window_bytes: None, table_bytes: None, requests: None };

/// How many requests are held while others go on.
const HELD_REQUESTS: usize = 50;

/// A module of tests for each server.
macro_rules! tell {
    ($($module:ident: $program:ident hears $($story:ident),+;)+) => {
        $(mod $module {
            $(#[test]
            fn $story() {
                let program = testbed::Http2Program::$program;
                if let Some(what) = program.lacks() {
                    eprintln!("there is not {what}: {program:?} judges nothing");
                    return;
                }
                super::$story(program);
            })+
        })+
    };
}

tell! {
    nghttpd: Nghttpd hears every_request_has_its_own_answer, few_streams_are_enough, small_windows_and_tables_are_kept,
        a_kill_ends_every_request, answers_of_every_form_are_read;
    nginx: Nginx hears every_request_has_its_own_answer, few_streams_are_enough, small_windows_and_tables_are_kept,
        a_graceful_end_loses_nothing, connections_that_end_all_the_time_lose_nothing, a_kill_ends_every_request,
        answers_of_every_form_are_read;
    haproxy: Haproxy hears every_request_has_its_own_answer, few_streams_are_enough, small_windows_and_tables_are_kept,
        a_graceful_end_loses_nothing, a_kill_ends_every_request, answers_of_every_form_are_read;
    node: Node hears every_request_has_its_own_answer, few_streams_are_enough, small_windows_and_tables_are_kept,
        a_kill_ends_every_request, answers_of_every_form_are_read;
    go: Go hears every_request_has_its_own_answer, few_streams_are_enough, small_windows_and_tables_are_kept,
        a_graceful_end_loses_nothing, a_kill_ends_every_request, answers_of_every_form_are_read;
    netty: Netty hears every_request_has_its_own_answer, few_streams_are_enough, small_windows_and_tables_are_kept,
        a_graceful_end_loses_nothing, a_kill_ends_every_request, answers_of_every_form_are_read;
}

/// Requests of these numbers that the server reads to their end, each with a body of at most `bytes_max`.
fn samples(program: Http2Program, numbers: Range<usize>, bytes_max: usize) -> Vec<Sample> {
    let of = |number| match program {
        Http2Program::Nghttpd => Sample::of_length(number, bytes_max),
        Http2Program::Nginx
        | Http2Program::Haproxy
        | Http2Program::Node
        | Http2Program::Go
        | Http2Program::Netty => Sample::new("echo", number, bytes_max),
    };
    numbers.map(of).collect()
}

/// Requests that wait for an answer until the server begins to end, and such as [`samples`] behind them.
fn samples_behind_held_ones(program: Http2Program) -> Vec<Sample> {
    let of = |number| match program {
        Http2Program::Nghttpd => Sample::of_length(number, 4_000),
        _ if number < HELD_REQUESTS => Sample::new("held", number, 4_000),
        // It would pass the others on to what has ended already.
        Http2Program::Nginx => Sample::new("early", number, 4_000),
        Http2Program::Haproxy | Http2Program::Node | Http2Program::Go | Http2Program::Netty => {
            Sample::new("echo", number, 4_000)
        }
    };
    (0..1_000).map(of).collect()
}

fn every_request_is_answered(program: Http2Program, limits: Http2Limits, samples: &[Sample]) {
    let server = start(program, limits);
    let outcomes = run(server.port(), async |client| client.ask_all(samples).await);
    check_all_answered(program, server, samples, &outcomes);
}

fn every_request_has_its_own_answer(program: Http2Program) {
    every_request_is_answered(program, DEFAULTS, &samples(program, 0..2_000, 100_000));
}

fn few_streams_are_enough(program: Http2Program) {
    let limits = Http2Limits { streams: Some(3), ..DEFAULTS };
    every_request_is_answered(program, limits, &samples(program, 0..500, 20_000));
}

fn small_windows_and_tables_are_kept(program: Http2Program) {
    // Go takes 0 for its default. The table of nginx is what it is, and that of HAProxy not smaller.
    let tables: &[_] = match program {
        Http2Program::Nginx | Http2Program::Haproxy => &[None],
        Http2Program::Go => &[Some(1), Some(1_024)],
        Http2Program::Nghttpd | Http2Program::Node | Http2Program::Netty => &[Some(0), Some(1_024)],
    };
    for table_bytes in tables.iter().copied() {
        let limits = Http2Limits { window_bytes: Some(128), table_bytes, ..DEFAULTS };
        every_request_is_answered(program, limits, &samples(program, 0..200, 5_000));
    }
}

fn a_graceful_end_loses_nothing(program: Http2Program) {
    let mut server = start(program, DEFAULTS);
    let asked = samples_behind_held_ones(program);
    let (outcomes, server) = run(server.port(), async |client| {
        let ending = async {
            client.answered(300).await;
            let ended = tokio::task::spawn_blocking(move || {
                server.end().unwrap();
                server.start_again().unwrap();
                server
            });
            ended.await.unwrap()
        };
        tokio::join!(client.ask_all(&asked), ending)
    });
    for (sample, outcome) in asked.iter().zip(&outcomes) {
        let is_held = sample.path.starts_with("/held/");
        let waits = matches!(program, Http2Program::Nginx | Http2Program::Haproxy) && is_held;
        let status = outcome.as_ref().map(|reply| reply.status);
        assert_eq!(status, Ok(if waits { HELD } else { 200 }), "{}", sample.path);
    }
    check_all_answered(program, server, &asked, &outcomes);
}

/// A GOAWAY every hundred requests, with more of them under way.
fn connections_that_end_all_the_time_lose_nothing(program: Http2Program) {
    let limits = Http2Limits { requests: Some(100), ..DEFAULTS };
    every_request_is_answered(program, limits, &samples(program, 0..2_000, 4_000));
}

fn a_kill_ends_every_request(program: Http2Program) {
    let mut server = start(program, DEFAULTS);
    let asked = samples_behind_held_ones(program);
    let later = samples(program, 1_000..1_100, 4_000);
    let (outcomes, server) = run(server.port(), async |client| {
        let killing = async {
            client.answered(300).await;
            let killed = tokio::task::spawn_blocking(move || {
                server.kill().unwrap();
                server.start_again().unwrap();
                server
            });
            killed.await.unwrap()
        };
        let (outcomes, server) = tokio::join!(client.ask_all(&asked), killing);
        for (sample, outcome) in later.iter().zip(client.ask_all(&later).await) {
            sample.check(program, &outcome.unwrap());
        }
        (outcomes, server)
    });
    let lost = check_after_a_kill(program, server, &asked, &outcomes);
    let holds = matches!(program, Http2Program::Node | Http2Program::Go | Http2Program::Netty);
    assert!(!holds || lost >= HELD_REQUESTS, "what was held is not answered: {lost}");
}

/// Answers that are large, early, or have something in front of them or behind; other requests go on beside them.
fn answers_of_every_form_are_read(program: Http2Program) {
    let kinds: &[&str] = match program {
        Http2Program::Nghttpd => &["trailers"],
        Http2Program::Haproxy => &["early"],
        Http2Program::Nginx | Http2Program::Node | Http2Program::Go | Http2Program::Netty => {
            &["early", "large", "trailers"]
        }
    };
    // Of the files of nghttpd and nginx there is one each.
    let number = |kind: &str, number: usize| {
        let is_file = matches!(program, Http2Program::Nghttpd | Http2Program::Nginx);
        if is_file && kind != "early" { 0 } else { number * 10 + 9 }
    };
    let mut server = start(program, DEFAULTS);
    run(server.port(), async |client| {
        for kind in kinds {
            let special: Vec<_> =
                (0..100).map(|n| Sample::new(kind, number(kind, n), 100_000)).collect();
            let plain = samples(program, 0..100, 1_000);
            let (outcomes, others) = tokio::join!(client.ask_all(&special), client.ask_all(&plain));
            for (sample, other) in plain.iter().zip(others) {
                sample.check(program, &other.unwrap());
            }
            for (sample, outcome) in special.iter().zip(outcomes) {
                check_form(program, kind, sample, &outcome.unwrap());
            }
        }
    });
    server.end().unwrap();
}

fn check_form(program: Http2Program, kind: &str, sample: &Sample, reply: &Reply) {
    if program != Http2Program::Nghttpd {
        sample.check(program, reply);
    }
    let body: Vec<u8> = match (reply.status, kind) {
        // That of an acceptance is not kept.
        (200, _) => Vec::new(),
        (400, "large") => b"large ".iter().copied().cycle().take(ANSWER_BYTES).collect(),
        (400, "trailers") => sample.path.clone().into_bytes(),
        other => panic!("{program:?}: {other:?}"),
    };
    assert_eq!(reply.body, body, "{program:?}: {}", sample.path);
    // What is in front of an answer or behind it is no part of it.
    assert!(!reply.headers.contains_key("link") && !reply.headers.contains_key("x-end"));
    if kind == "large" && program == Http2Program::Nginx {
        let length = reply.headers["content-length"].to_str().unwrap();
        assert_eq!(length, LARGE_BYTES.to_string());
    }
}
