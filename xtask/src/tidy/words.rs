//! The words of comments: each stands alone, with a noun of the field as its subject.

/// Beginnings of a documentation comment that leave its subject to the reader.
const OPENINGS: &[&str] = &["What", "Who", "Whoever", "The same"];
/// Subjects that stand for a component without saying which.
const PRONOUNS: &[&str] = &["nobody", "somebody", "anybody", "whoever"];

/// One line for each comment in the text of a Rust file that breaks a rule.
pub(super) fn check(text: &str, offences: &mut Vec<String>) {
    let mut in_doc = false;
    for (i, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let doc = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        if let Some(opening) = doc.filter(|_| !in_doc).and_then(opening) {
            offences.push(format!(
                "line {}: a documentation comment begins with \"{opening}\": begin with what the item is",
                i + 1
            ));
        }
        if let Some(pronoun) = line.strip_prefix("//").and_then(pronoun) {
            offences.push(format!("line {}: a comment says \"{pronoun}\": name the part", i + 1));
        }
        in_doc = doc.is_some();
    }
}

fn opening(doc: &str) -> Option<&'static str> {
    let begins = |opening: &&str| {
        doc.trim_start().strip_prefix(opening).is_some_and(|rest| rest.starts_with(' '))
    };
    OPENINGS.iter().copied().find(begins)
}

/// A pronoun in prose: names in backticks are the reader's to look up.
fn pronoun(comment: &str) -> Option<&'static str> {
    let prose = comment.split('`').step_by(2);
    let mut words = prose.flat_map(|part| part.split(|letter: char| !letter.is_alphanumeric()));
    words.find_map(|word| {
        PRONOUNS.iter().copied().find(|pronoun| word.eq_ignore_ascii_case(pronoun))
    })
}
