//! The lines of a body, as they come in.

use std::pin::Pin;

use bytes::Bytes;
use tokio::time::{Sleep, sleep};

use crate::body::{Incoming, too_slow};
use crate::limits::BODY_TIMEOUT;
use crate::lines::{BodyLine, Lines};
use crate::problem::Problem;

/// A body that is read line by line. A line must be complete within [`BODY_TIMEOUT`] of its first byte, so what is
/// held for one is not held for long.
#[derive(Debug)]
pub(crate) struct Input {
    incoming: Incoming,
    lines: Lines,
    /// When the line that has begun is late, and its number.
    late: Option<(u64, Pin<Box<Sleep>>)>,
}

// === impl Input ===

impl Input {
    pub(crate) fn new(incoming: Incoming) -> Self {
        Self { incoming, lines: Lines::default(), late: None }
    }

    /// The next line, if all of it is here.
    pub(crate) fn next(&mut self) -> Option<BodyLine> {
        self.lines.next()
    }

    /// The last line, if its end is missing. Call it at the end of the body.
    pub(crate) fn finish(&mut self) -> Option<BodyLine> {
        self.lines.finish()
    }

    /// True if a part of a line is kept.
    pub(crate) fn holds_some(&self) -> bool {
        self.lines.begun().is_some()
    }

    /// The next piece, if it is here already; `None` within it is the end.
    pub(crate) fn piece_at_hand(&mut self) -> Option<Result<Option<Bytes>, Problem>> {
        self.incoming.piece_at_hand()
    }

    /// Waits for the next piece; `None` is the end.
    pub(crate) async fn piece(&mut self) -> Result<Option<Bytes>, Problem> {
        let begun = self.lines.begun();
        // Further pieces of a line do not start its time anew: the line as a whole must be in time.
        if self.late.as_ref().map(|(number, _)| *number) != begun {
            self.late = begun.map(|number| (number, Box::pin(sleep(BODY_TIMEOUT))));
        }
        match &mut self.late {
            None => self.incoming.piece().await,
            Some((_, late)) => tokio::select! {
                // A piece that is here is in time, even when its time has passed as well.
                biased;
                piece = self.incoming.piece() => piece,
                () = late.as_mut() => Err(too_slow()),
            },
        }
    }

    /// Takes a piece. The last one must be used up: [`Input::next`] has said `None`.
    pub(crate) fn push(&mut self, piece: Bytes) {
        self.lines.push(piece);
    }

    /// The rest of the body.
    pub(crate) fn into_incoming(self) -> Incoming {
        self.incoming
    }

    /// Reads the rest and throws it away.
    pub(crate) async fn skip(&mut self) -> Result<(), Problem> {
        self.incoming.skip().await
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::body::Body;
    use futures_util::stream;
    use notification::limits;

    use super::*;

    /// A body of `pieces` again and again, each after half of the time that is waited for one.
    fn dribbling(pieces: &'static [&'static str]) -> Input {
        let body = stream::unfold(0, move |number| async move {
            sleep(limits::IDLE_TIMEOUT / 2).await;
            let piece = Bytes::from_static(pieces[number % pieces.len()].as_bytes());
            Some((Ok::<_, Infallible>(piece), number + 1))
        });
        Input::new(Incoming::new(Body::from_stream(body)))
    }

    /// Reads `most` pieces, or as many as come before it is given up; and how many lines they were.
    async fn read(input: &mut Input, most: usize) -> (usize, usize, Option<Problem>) {
        let (mut pieces, mut lines) = (0, 0);
        while pieces < most {
            match input.piece().await {
                Ok(piece) => input.push(piece.unwrap()),
                Err(problem) => return (pieces, lines, Some(problem)),
            }
            pieces += 1;
            while input.next().is_some() {
                lines += 1;
            }
        }
        (pieces, lines, None)
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_has_a_minute_and_a_stream_has_any_time() {
        let (pieces, lines, problem) = read(&mut dribbling(&["{"]), 1_000).await;
        assert_eq!(problem.unwrap().status(), 408);
        let in_time = BODY_TIMEOUT.as_secs() / (limits::IDLE_TIMEOUT.as_secs() / 2);
        assert!((in_time..=in_time + 1).contains(&(pieces as u64)), "{pieces}");
        assert_eq!(lines, 0);
        let (pieces, lines, problem) = read(&mut dribbling(&["{", "}\n", "\n"]), 999).await;
        assert!(problem.is_none(), "{problem:?}");
        assert_eq!((pieces, lines), (999, 333));
    }
}
