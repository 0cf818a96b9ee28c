//! A stream of notifications: lines in, answers out, constant memory.
//!
//! Nothing here runs in the background. The connection asks for answers; to give some, the stream reads
//! what has arrived, hands it to the store, and waits for whichever comes first: more input, or a commit.
//! A caller that does not read its answers is therefore not read from either.
//!
//! No timer groups lines: what arrives while calls are under way is the next call.

use std::io::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, FuturesOrdered, StreamExt};
use notification::{Draft, limits};
use pipeline::Intake;
use pipeline::ingest::json::{ParseError, utf8};
use pipeline::ingest::{InvalidField, Reservation};
use schemars::JsonSchema;
use serde::Serialize;
use store::{Admission, StoreError};

use crate::body::Incoming;
use crate::caller::Caller;
use crate::draft::{DraftError, read_draft};
use crate::input::Input;
use crate::lines::BodyLine;
use crate::problem::Problem;
use crate::problem_code::ProblemCode;
use crate::yield_budget::YieldBudget;

/// The lines of one store call, in order.
#[derive(Debug, Default)]
struct LineGroup {
    /// A line's number, and its fault unless it is the next of `drafts`.
    lines: Vec<(u64, Option<LineError>)>,
    drafts: Vec<Draft>,
    bytes: usize,
}

/// How the lines of a stream ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub(crate) struct LineCounts {
    accepted: u64,
    replayed: u64,
    refused: u64,
}

/// Why a line was refused.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct LineError {
    status: u16,
    #[serde(skip_serializing_if = "str::is_empty")]
    pointer: std::borrow::Cow<'static, str>,
    detail: String,
    code: ProblemCode,
}

type Answered = Result<(Vec<u8>, LineCounts), StoreError>;

struct Answers {
    intake: Arc<Intake>,
    caller: Caller,
    input: Input,
    group: LineGroup,
    calls: FuturesOrdered<BoxFuture<'static, Answered>>,
    counts: LineCounts,
    stage: StreamStage,
    budget: YieldBudget,
    /// Set aside while anything is held: a line, a group, a call.
    held: Option<Reservation>,
}

/// How far a stream is.
#[derive(Debug)]
enum StreamStage {
    /// There may be more input.
    Reading,
    /// Nothing more is read; what was read is answered first.
    Read(Result<(), Problem>),
    /// The last line is out.
    Over,
}

/// The answers to `incoming`, in pieces of whole lines.
pub(crate) fn answers(
    intake: Arc<Intake>,
    caller: Caller,
    incoming: Incoming,
) -> impl Stream<Item = Result<Bytes, std::convert::Infallible>> + Send {
    let answers = Answers {
        intake,
        caller,
        input: Input::new(incoming),
        group: LineGroup::default(),
        calls: FuturesOrdered::new(),
        counts: LineCounts::default(),
        stage: StreamStage::Reading,
        budget: YieldBudget::default(),
        held: None,
    };
    stream::unfold(answers, |mut answers| async move {
        let piece = answers.next().await?;
        Some((Ok(piece), answers))
    })
}

// === impl Answers ===

impl Answers {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            self.read_what_is_here().await;
            let is_read = !matches!(self.stage, StreamStage::Reading);
            if !self.group.lines.is_empty() && self.calls.len() < limits::STREAM_CALLS {
                self.submit();
                continue;
            }
            if is_read && self.group.lines.is_empty() && self.calls.is_empty() {
                return self.last_line();
            }
            let may_read = self.may_read();
            // A stream that only waits for its next line holds no memory.
            if self.calls.is_empty() && self.group.lines.is_empty() && !self.input.holds_some() {
                self.held = None;
            }
            // For more input or for the oldest call, whichever comes first.
            tokio::select! {
                // Answers before input: a caller that only writes goes no faster than the store.
                biased;
                Some(answered) = self.calls.next(), if !self.calls.is_empty() => match answered {
                    Ok((text, counts)) => {
                        self.counts.add(counts);
                        return Some(text.into());
                    }
                    Err(error) => {
                        // A line without an answer may or may not be stored, and no more is promised of one.
                        self.calls.clear();
                        self.group = LineGroup::default();
                        self.stage = StreamStage::Read(Err(error.into()));
                    }
                },
                piece = self.input.piece(), if may_read => self.take(piece).await,
                else => {}
            }
        }
    }

    fn may_read(&self) -> bool {
        matches!(self.stage, StreamStage::Reading) && !self.group.is_full()
    }

    /// Collects lines until the group is full or nothing more has arrived.
    async fn read_what_is_here(&mut self) {
        // What is left of the last piece goes first: it must be used up before another one is pushed.
        self.collect().await;
        while self.may_read()
            && let Some(piece) = self.input.piece_at_hand()
        {
            self.take(piece).await;
        }
    }

    async fn take(&mut self, piece: Result<Option<Bytes>, Problem>) {
        match piece {
            Ok(Some(piece)) => {
                // Before the piece is kept: while this waits, the connection is not read from.
                if let Err(problem) = self.hold().await {
                    self.stage = StreamStage::Read(Err(problem));
                    return;
                }
                self.input.push(piece);
                self.collect().await;
            }
            Ok(None) => {
                self.stage = StreamStage::Read(Ok(()));
                if let Some(line) = self.input.finish() {
                    self.read(line).await;
                }
            }
            Err(problem) => self.stage = StreamStage::Read(Err(problem)),
        }
    }

    /// Sets aside what the stream may hold, unless it has that. It waits for room with nothing of its own in hand.
    async fn hold(&mut self) -> Result<(), Problem> {
        if self.held.is_none() {
            self.held = Some(self.intake.reserve_for_stream(&self.caller.tenant).await?);
        }
        Ok(())
    }

    async fn collect(&mut self) {
        while !self.group.is_full()
            && matches!(self.stage, StreamStage::Reading)
            && let Some(line) = self.input.next()
        {
            let bytes = line.text.as_ref().map_or(0, Bytes::len);
            self.read(line).await;
            self.budget.spend_and_yield(bytes).await;
        }
    }

    async fn read(&mut self, line: BodyLine) {
        let now = self.intake.now();
        let length = line.text.as_ref().map_or(0, Bytes::len);
        self.group.bytes += length;
        let draft = match line.text {
            None => Err(LineError::too_long()),
            Some(text) => match utf8(text) {
                Ok(text) => {
                    let draft = read_draft(&self.intake, &self.caller, (&text, &text), None, now);
                    match draft.await {
                        Ok(draft) => draft
                            .map(|draft| draft.traced_as(line.number.saturating_sub(1)))
                            .map_err(LineError::from),
                        // Of this line and of all behind it nothing is taken in.
                        Err(overload) => {
                            self.stage = StreamStage::Read(Err(overload.into()));
                            return;
                        }
                    }
                }
                Err(error) => Err(error.into()),
            },
        };
        match draft {
            Ok(draft) => {
                // What is rendered may be larger than its line.
                self.group.bytes += draft.content.bytes_stored().saturating_sub(length);
                self.group.drafts.push(draft);
                self.group.lines.push((line.number, None));
            }
            Err(error) => self.group.lines.push((line.number, Some(error))),
        }
    }

    fn submit(&mut self) {
        let group = std::mem::take(&mut self.group);
        let intake = Arc::clone(&self.intake);
        self.calls.push_back(Box::pin(group.answer(intake)));
    }

    fn last_line(&mut self) -> Option<Bytes> {
        match std::mem::replace(&mut self.stage, StreamStage::Over) {
            StreamStage::Over => None,
            StreamStage::Reading | StreamStage::Read(Ok(())) => Some(json_line(&self.counts)),
            StreamStage::Read(Err(problem)) => {
                #[derive(Serialize)]
                struct BrokenStream {
                    error: LineError,
                }
                let error = LineError::new(problem.code, problem.detail);
                Some(json_line(&BrokenStream { error }))
            }
        }
    }
}

// === impl LineGroup ===

impl LineGroup {
    fn is_full(&self) -> bool {
        self.lines.len() >= limits::STREAM_ITEMS || self.bytes >= limits::STREAM_GROUP_BYTES
    }

    /// Stores the drafts, and writes a line for each line.
    async fn answer(self, intake: Arc<Intake>) -> Answered {
        let mut admissions = intake.accept_each(self.drafts).await?.into_iter();
        // An answer with an identifier has about sixty bytes.
        let mut text = Vec::with_capacity(self.lines.len() * 64);
        let mut counts = LineCounts::default();
        for (line, error) in self.lines {
            let admission = match error {
                Some(error) => Err(error),
                None => match admissions.next() {
                    Some(Ok(admission)) => Ok(admission),
                    Some(Err(invalid)) => Err(LineError::refused(invalid)),
                    None => Err(LineError::new(ProblemCode::InternalError, "no answer".to_owned())),
                },
            };
            counts.count(&admission);
            write_answer(&mut text, line, &admission);
        }
        Ok((text, counts))
    }
}

// === impl LineCounts ===

impl LineCounts {
    fn count(&mut self, admission: &Result<Admission, LineError>) {
        match admission {
            Ok(Admission::Accepted(_)) => self.accepted += 1,
            Ok(Admission::Replayed(_)) => self.replayed += 1,
            Err(_) => self.refused += 1,
        }
    }

    fn add(&mut self, other: Self) {
        self.accepted += other.accepted;
        self.replayed += other.replayed;
        self.refused += other.refused;
    }
}

// === impl LineError ===

impl LineError {
    fn new(code: ProblemCode, detail: String) -> Self {
        Self { status: code.status().as_u16(), pointer: "".into(), detail, code }
    }

    fn of_field(code: ProblemCode, invalid: InvalidField) -> Self {
        Self { pointer: invalid.pointer, ..Self::new(code, invalid.message) }
    }

    fn too_long() -> Self {
        let detail = format!("the line has more than {} bytes", limits::LINE_BYTES);
        Self::new(ProblemCode::TooLarge, detail)
    }

    /// By the store, which knows of each key whether it was used before.
    fn refused(invalid: InvalidField) -> Self {
        let is_reused = invalid.is_key();
        let code =
            if is_reused { ProblemCode::IdempotencyKeyReused } else { ProblemCode::InvalidField };
        Self::of_field(code, invalid)
    }
}

impl From<DraftError> for LineError {
    fn from(error: DraftError) -> Self {
        match error {
            DraftError::Wrong(error) => error.into(),
            DraftError::Header(detail) => Self::new(ProblemCode::InvalidHeader, detail.to_owned()),
        }
    }
}

impl From<ParseError> for LineError {
    fn from(error: ParseError) -> Self {
        match error {
            ParseError::Syntax(detail) => Self::new(ProblemCode::InvalidJson, detail),
            ParseError::Invalid(invalid) if invalid.is_not_granted => {
                Self::of_field(ProblemCode::NotGranted, invalid)
            }
            ParseError::Invalid(invalid) => Self::of_field(ProblemCode::InvalidField, invalid),
        }
    }
}

// === helpers ===

/// Writes one answer. A write to a vector cannot fail.
fn write_answer(text: &mut Vec<u8>, line: u64, admission: &Result<Admission, LineError>) {
    let mut buffer = [0; 36];
    let written = match admission {
        Ok(Admission::Accepted(id)) => {
            writeln!(text, r#"{{"line":{line},"id":"{}"}}"#, id.encode(&mut buffer))
        }
        Ok(Admission::Replayed(id)) => {
            writeln!(text, r#"{{"line":{line},"id":"{}","replayed":true}}"#, id.encode(&mut buffer))
        }
        Err(error) => {
            let error = serde_json::to_string(error).unwrap_or_default();
            writeln!(text, r#"{{"line":{line},"error":{error}}}"#)
        }
    };
    debug_assert!(written.is_ok());
}

fn json_line(value: &impl Serialize) -> Bytes {
    let mut text = serde_json::to_vec(value).unwrap_or_default();
    text.push(b'\n');
    text.into()
}
