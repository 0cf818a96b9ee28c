//! The client's account of its requests, against the server's.

use std::collections::HashMap;
use std::convert::Infallible;

use net::exchange::{Failure, Reply};
use testbed::{Http2Program, Http2Server};

use crate::samples::Sample;

/// Checks that each of `samples` was answered, with its own answer, and that the server, which it ends, processed each once.
pub(crate) fn check_all_answered(
    program: Http2Program,
    mut server: Http2Server,
    samples: &[Sample],
    outcomes: &[Result<Reply, Failure<Infallible>>],
) {
    server.end().unwrap();
    let counts = counts(&server);
    // HAProxy leaves lines out of its log when it has much to say.
    let noted_at_least = usize::from(program != Http2Program::Haproxy);
    assert_eq!(samples.len(), outcomes.len());
    for (sample, outcome) in samples.iter().zip(outcomes) {
        match outcome {
            Ok(reply) => sample.check(program, reply),
            Err(failure) => panic!("{program:?}: {}: {failure:?}", sample.path),
        }
        let count = counts.get(&sample.path).copied().unwrap_or_default();
        assert!((noted_at_least..=1).contains(&count), "{program:?}: {}: {count}", sample.path);
    }
    assert!(!counts.is_empty(), "{program:?} has noted nothing");
}

/// Checks that the server, which was killed in between, processed no request twice, and none that the client says it did not.
/// Gives how many were lost.
pub(crate) fn check_after_a_kill(
    program: Http2Program,
    mut server: Http2Server,
    samples: &[Sample],
    outcomes: &[Result<Reply, Failure<Infallible>>],
) -> usize {
    server.end().unwrap();
    let counts = counts(&server);
    let mut lost = 0;
    assert_eq!(samples.len(), outcomes.len());
    for (sample, outcome) in samples.iter().zip(outcomes) {
        let count = counts.get(&sample.path).copied().unwrap_or_default();
        assert!(count <= 1, "{program:?}: {} was processed {count} times", sample.path);
        match outcome {
            Ok(reply) => sample.check(program, reply),
            Err(Failure::Lost(_)) => lost += 1,
            Err(Failure::Unsent(why)) => {
                assert_eq!(count, 0, "{program:?}: {} is unsent: {why:?}", sample.path);
            }
        }
    }
    lost
}

/// How often each path was requested.
fn counts(server: &Http2Server) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for path in server.requests().unwrap() {
        *counts.entry(path).or_default() += 1;
    }
    counts
}
