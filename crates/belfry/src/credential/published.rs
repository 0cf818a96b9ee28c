//! Secrets that are publicly known: placeholders of the documentation, and those that standards and libraries publish. One that
//! is copied into a configuration protects nothing.

/// The text that marks a placeholder, wherever the documentation shows a secret.
const PLACEHOLDER: &str = "<your ";

/// Published secrets, in the form in which a setting would hold them, and where.
const PUBLISHED: &[(&str, &str)] = &[
    ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "the example of Standard Webhooks"),
    ("C2FVsBQIhrscChlQIMV+b5sSYspob7oD", "the example of Standard Webhooks' libraries"),
    ("plJ3nmyCDGBKInavdOK15jsl", "an example of Standard Webhooks' libraries"),
    ("Bearer 0123456789", "an example of this documentation"),
    ("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw", "the example of RFC 8291"),
    ("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94", "the example of RFC 8291"),
    ("nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A", "the example of RFC 8032 and RFC 8463"),
    (
        "MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g",
        "the example of RFC 8032 and RFC 8463",
    ),
];

/// Words that examples take as a key, and attackers try first.
const WORDS: &[&str] = &[
    "",
    "test",
    "secret",
    "password",
    "belfry",
    "changeme",
    "admin",
    "key",
    "token",
    "hello",
    "hello world",
    "example",
    "foo",
    "foobar",
    "1234",
    "123456",
    "bfy_test",
    "bfy_secret",
];

/// Why `secret` is refused, if it is publicly known.
pub(crate) fn refusal(secret: &str) -> Option<String> {
    if secret.contains(PLACEHOLDER) {
        return Some(
            "is the placeholder of the documentation: put a secret of your own here".to_owned(),
        );
    }
    // Anywhere in it: a secret may stand behind `whsec_`, or within a PEM text.
    let (_, place) = PUBLISHED.iter().find(|(published, _)| secret.contains(published))?;
    Some(format!("is {place}, which everybody knows: make one of your own"))
}

/// Why the key whose SHA-256 is `digits` is refused, if it is publicly known.
pub(crate) fn refusal_of_key(digits: &str) -> Option<String> {
    let is_of = |word: &&&str| api::hash(word).eq_ignore_ascii_case(digits.trim());
    let word = WORDS.iter().find(is_of)?;
    Some(format!("is the SHA-256 of {word:?}, which everybody knows: `belfry api-key` makes a key"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_is_refused_by_name_and_what_is_not_is_not() {
        let check = |secret: &str, expect: Option<&str>| {
            let refused = refusal(secret);
            assert_eq!(refused.is_some(), expect.is_some(), "{secret}");
            assert!(refused.unwrap_or_default().contains(expect.unwrap_or_default()), "{secret}");
        };
        check("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", Some("the example of Standard Webhooks"));
        check("whsec_<your secret>", Some("placeholder"));
        check("whsec_YSBjYW5hcnkgb2Ygb25lIHdlYmhvb2sh", None);
        check("", None);
        let of_test = "9F86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
        assert!(refusal_of_key(of_test).unwrap().contains("SHA-256 of \"test\""));
        assert_eq!(refusal_of_key(&"0".repeat(64)), None);
    }
}
