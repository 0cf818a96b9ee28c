//! Colours of states on standard output: where that is a terminal and `NO_COLOR` is not set (<https://no-color.org>).

use std::io;

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};

/// `text`, which is a state or says one, in the colour of `state`; without one where there are no colours.
pub(crate) fn state(state: &str, text: &str) -> String {
    let has_colours = AutoStream::choice(&io::stdout()) != ColorChoice::Never;
    if has_colours { painted(state, text) } else { text.to_owned() }
}

fn painted(state: &str, text: &str) -> String {
    let style = style(state);
    format!("{style}{text}{style:#}")
}

/// Green has arrived, red has not and will not, yellow asks for a look or was meant so, cyan goes on.
fn style(state: &str) -> Style {
    let colour = match state {
        "delivered" => AnsiColor::Green,
        "refused" | "expired" | "dead" => AnsiColor::Red,
        "in_doubt" | "suppressed" | "cancelled" => AnsiColor::Yellow,
        "pending" | "claimed" | "begun" => AnsiColor::Cyan,
        _ => return Style::new(),
    };
    colour.on_default()
}

#[cfg(test)]
mod tests {
    use notification::State;

    use super::*;

    #[test]
    fn each_state_has_a_colour_and_other_words_have_none() {
        for word in State::ALL.iter().map(|state| state.as_str()) {
            let painted = painted(word, "x");
            assert!(painted.starts_with("\u{1b}[3") && painted.ends_with("mx\u{1b}[0m"), "{word}");
        }
        assert_eq!(painted("accepted", "x"), "x");
    }
}
