//! The words of an operator about notifications that are in doubt.

use notification::State;

/// The end that an operator gives to notifications that are in doubt, with a note of how it was found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolution {
    pub(crate) is_delivered: bool,
    pub(crate) note: String,
}

/// A resolution that there is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResolutionError {
    /// The state is another one.
    #[error("what is in doubt was delivered or not: resolve it as delivered, or as dead")]
    State,
    /// The note is too long, or has control characters.
    #[error(
        "the note must have at most {} bytes and no control characters",
        Resolution::NOTE_BYTES
    )]
    Note,
}

/// The answer to resolving one notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Resolved {
    /// The notification has ended as the resolution says.
    Resolved,
    /// The notification is not in doubt: nothing has changed.
    OtherState,
    /// The tenant has no such notification.
    Unknown,
}

// === impl Resolution ===

impl Resolution {
    /// Bytes of a note: one line in the log, and not a place for documents.
    pub const NOTE_BYTES: usize = 200;

    /// The end in `state`, which is delivered or dead, with a note that may be empty.
    pub fn new(state: State, note: &str) -> Result<Self, ResolutionError> {
        if !matches!(state, State::Delivered | State::Dead) {
            return Err(ResolutionError::State);
        }
        if note.len() > Self::NOTE_BYTES || note.chars().any(char::is_control) {
            return Err(ResolutionError::Note);
        }
        Ok(Self { is_delivered: state == State::Delivered, note: note.trim().to_owned() })
    }

    /// The state in which the notifications have ended.
    pub const fn state(&self) -> State {
        if self.is_delivered { State::Delivered } else { State::Dead }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resolution_is_delivered_or_dead_and_its_note_is_short() {
        for &state in State::ALL {
            let is_known = matches!(state, State::Delivered | State::Dead);
            let resolution = Resolution::new(state, "");
            assert_eq!(resolution.map(|it| it.state()).ok(), is_known.then_some(state));
        }
        let note = |note: &str| Resolution::new(State::Dead, note).map(|it| it.note);
        assert_eq!(note(" asked them "), Ok("asked them".to_owned()));
        assert_eq!(note(&"é".repeat(100)), Ok("é".repeat(100)));
        for wrong in [&"é".repeat(101), "two\nlines", "\u{85}", "\0"] {
            assert_eq!(note(wrong), Err(ResolutionError::Note), "{wrong:?}");
        }
    }
}
