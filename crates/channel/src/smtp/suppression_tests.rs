//! Recipients join the suppression list for the reasons that the channel's page names, and for no other.

use std::time::Duration;

use super::response::{SmtpDelays, interpret};
use super::transaction::SmtpStage;
use super::wire::SmtpReply;
use crate::Attempt;
use crate::test_support::check_suppressions;

/// Every reply code alone, and every enhanced code with the one that goes with it most often, to `stage`.
fn answers(stage: SmtpStage) -> impl Iterator<Item = (String, Attempt)> {
    let alone = (400..=599).map(|code| (code.to_string(), code, [0; 3]));
    let enhanced = [4, 5].into_iter().flat_map(|class| {
        (0..=7).flat_map(move |subject| {
            (0..=30).map(move |detail| {
                let name = format!("{class}.{subject}.{detail}");
                (name, u16::from(class) * 100 + 50, [class, subject, detail])
            })
        })
    });
    alone.chain(enhanced).map(move |(name, code, enhanced)| {
        let reply = SmtpReply { code, enhanced, text: "no".to_owned() };
        let delays = SmtpDelays { deferred: Duration::ZERO, greylisted: Duration::ZERO };
        (name, interpret(stage, &reply, delays).0)
    })
}

#[test]
fn the_page_says_which_answers_suppress() {
    for stage in [SmtpStage::Recipient, SmtpStage::Message] {
        check_suppressions("smtp", 1, answers(stage));
    }
    for stage in [SmtpStage::Mail, SmtpStage::Data] {
        assert!(!answers(stage).any(|(_, attempt)| crate::test_support::is_unregistered(&attempt)));
    }
}
