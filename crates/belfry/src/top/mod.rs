//! `belfry top`: an engine as it works, in a terminal.
//!
//! A thread asks for the status once a second; the loop here draws what came last and takes keys, so that an engine that does not answer
//! never holds up the keys.

mod findings;
mod history;
mod view;

use std::io::{self, IsTerminal as _};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use api::StatusAnswer;
use clap::Args;
use flow::Clock;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use crate::client::Client;
use crate::exit::{CliError, FailureKind};
use history::StatusHistory;
use view::{View, ViewOrder};

/// `belfry top`
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Stop after so many seconds; without it, when `q` is pressed
    #[arg(long, value_name = "SECONDS")]
    pub(crate) seconds: Option<u64>,
}

/// Between two questions to the engine.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// Between two looks at the keys.
const KEYS_EVERY: Duration = Duration::from_millis(100);

type TopAnswer = anyhow::Result<StatusAnswer>;

/// The reaction to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyEffect {
    Quit,
    Draw,
    None,
}

/// Shows the engine until it is told to stop.
///
/// # Errors
/// When standard output is no terminal, or the first answer is an error: later ones are shown.
pub(crate) fn run(args: &TopArgs, client: Client) -> anyhow::Result<()> {
    if !io::stdout().is_terminal() {
        let detail =
            "standard output is no terminal: `belfry status --watch` prints the same as text";
        return Err(CliError::new(FailureKind::Usage, detail).into());
    }
    let clock = Clock::system();
    let first = client.get("/v1/status")?;
    let mut history = StatusHistory::default();
    history.note(clock.monotonic(), first);
    let answers = ask_on(client)?;
    let mut terminal = ratatui::init();
    let ended = show(&mut terminal, &answers, history, args.seconds.map(Duration::from_secs));
    ratatui::restore();
    ended
}

/// Asks for the status in a thread of its own, which ends when the receiver is gone.
fn ask_on(client: Client) -> io::Result<Receiver<TopAnswer>> {
    let (answers, received) = mpsc::sync_channel(1);
    let ask = move || {
        loop {
            thread::sleep(ASK_EVERY);
            if answers.send(client.get("/v1/status")).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("status".to_owned()).spawn(ask)?;
    Ok(received)
}

fn show(
    terminal: &mut DefaultTerminal,
    answers: &Receiver<TopAnswer>,
    mut history: StatusHistory,
    lasts: Option<Duration>,
) -> anyhow::Result<()> {
    let clock = Clock::system();
    let begun = clock.monotonic();
    let mut view = View::default();
    loop {
        let now = clock.monotonic();
        terminal.draw(|frame| view.draw(frame, &history, pipeline::timestamp(clock)))?;
        let is_over = lasts.is_some_and(|lasts| now.duration_since(begun) >= lasts);
        if is_over || !next(&mut view, &mut history, answers, clock)? {
            return Ok(());
        }
    }
}

/// Waits for an answer or a key that changes something; false if it is over.
fn next(
    view: &mut View,
    history: &mut StatusHistory,
    answers: &Receiver<TopAnswer>,
    clock: Clock,
) -> anyhow::Result<bool> {
    loop {
        while event::poll(Duration::ZERO)? {
            match react(view, &event::read()?) {
                KeyEffect::Quit => return Ok(false),
                KeyEffect::Draw => return Ok(true),
                KeyEffect::None => {}
            }
        }
        match answers.recv_timeout(KEYS_EVERY) {
            Ok(Ok(status)) => {
                history.note(clock.monotonic(), status);
                return Ok(true);
            }
            Ok(Err(error)) => {
                history.note_silence(&error);
                return Ok(true);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(false),
        }
    }
}

/// Has `view` react to `event`.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "a terminal has many keys, and any other one does nothing"
)]
fn react(view: &mut View, event: &Event) -> KeyEffect {
    let key = match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => key,
        Event::Resize(..) => return KeyEffect::Draw,
        Event::FocusGained
        | Event::FocusLost
        | Event::Key(_)
        | Event::Mouse(_)
        | Event::Paste(_) => {
            return KeyEffect::None;
        }
    };
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return KeyEffect::Quit,
        KeyCode::Char('c') if is_control => return KeyEffect::Quit,
        KeyCode::Char('w') => view.order = ViewOrder::UnderWay,
        KeyCode::Char('l') => view.order = ViewOrder::Latency,
        KeyCode::Char('d') => view.order = ViewOrder::Due,
        KeyCode::Char('t') => view.only_trouble = !view.only_trouble,
        KeyCode::Down | KeyCode::Char('j') => view.skipped = view.skipped.saturating_add(1),
        KeyCode::Up | KeyCode::Char('k') => view.skipped = view.skipped.saturating_sub(1),
        KeyCode::PageDown => view.skipped = view.skipped.saturating_add(view::PAGE),
        KeyCode::PageUp => view.skipped = view.skipped.saturating_sub(view::PAGE),
        KeyCode::Home => view.skipped = 0,
        _ => return KeyEffect::None,
    }
    KeyEffect::Draw
}
