//! Addresses: which are accepted, in one spelling each.

use std::borrow::Cow;

use crate::Invalid;

/// An address, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mailbox {
    pub(super) name: Option<String>,
    /// Its domain is in lower case.
    pub(super) address: String,
}

/// Bounds of RFC 5321, section 4.5.3.1; an address fits into a path of 256 with its brackets.
const ADDRESS_BYTES_MAX: usize = 254;
const LOCAL_BYTES_MAX: usize = 64;
const DOMAIN_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;
/// Longest display name.
const NAME_BYTES_MAX: usize = 255;

// === impl Mailbox ===

impl Mailbox {
    /// Reads `news@example.com` or `Example <news@example.com>`.
    pub(super) fn parse(text: &str) -> Result<Self, Invalid> {
        let Some((name, rest)) = text.trim_matches(' ').rsplit_once('<') else {
            return Ok(Self {
                name: None,
                address: canonical(text.trim_matches(' '))?.into_owned(),
            });
        };
        let Some(address) = rest.strip_suffix('>') else {
            return Err(Invalid::new(
                "must be like news@example.com or Example <news@example.com>",
            ));
        };
        let name = unquoted(name.trim_matches(' '));
        if name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            return Err(Invalid::new(format!(
                "has a name that is longer than {NAME_BYTES_MAX} bytes or has control characters"
            )));
        }
        let address = canonical(address)?.into_owned();
        Ok(Self { name: (!name.is_empty()).then(|| name.to_owned()), address })
    }

    /// The domain of the address.
    pub(super) fn domain(&self) -> &str {
        domain_of(&self.address)
    }
}

/// The one spelling of an address: its domain in lower case. Refuses what is none: the local part is a dot-atom, the
/// domain a name; both may be international (RFC 6531).
pub(super) fn canonical(address: &str) -> Result<Cow<'_, str>, Invalid> {
    let refuse = |message: &str| Err(Invalid::new(message));
    if address.len() > ADDRESS_BYTES_MAX {
        let message = format!("must have at most {ADDRESS_BYTES_MAX} bytes, has {}", address.len());
        return Err(Invalid::new(message));
    }
    let Some((local, domain)) = address.rsplit_once('@') else {
        return refuse("is not an e-mail address such as name@example.com");
    };
    if local.len() > LOCAL_BYTES_MAX {
        return refuse("has more than 64 bytes before the @");
    }
    if !local.split('.').all(is_atom) {
        return refuse(
            "has something before the @ that is not letters, digits, !#$%&'*+-/=?^_`{|}~ and single dots between them",
        );
    }
    if !is_domain(domain) {
        return refuse("has something after the @ that is not a domain such as example.com");
    }
    let lower = domain.to_lowercase();
    if lower == domain {
        return Ok(Cow::Borrowed(address));
    }
    Ok(Cow::Owned(format!("{local}@{lower}")))
}

/// What follows the `@` of a checked address.
pub(super) fn domain_of(address: &str) -> &str {
    address.rsplit_once('@').map_or("", |(_, domain)| domain)
}

/// Whether `text` is a domain name, possibly international.
pub(super) fn is_domain(text: &str) -> bool {
    let is_letter = |letter: char| match letter {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '_' => true,
        _ => is_international(letter),
    };
    let is_label = |label: &str| {
        (1..=LABEL_BYTES_MAX).contains(&label.len())
            && label.chars().all(is_letter)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= DOMAIN_BYTES_MAX && text.split('.').all(is_label)
}

/// `atext` of RFC 5322, section 3.2.3, and of RFC 6531, section 3.3.
fn is_atom(text: &str) -> bool {
    let is_letter = |letter: char| match letter {
        '!' | '#'..='\'' | '*' | '+' | '-' | '/' | '=' | '?' | '^'..='~' => true,
        _ => letter.is_ascii_alphanumeric() || is_international(letter),
    };
    !text.is_empty() && text.chars().all(is_letter)
}

/// No ASCII, no control character, and nothing that shows as a space.
fn is_international(letter: char) -> bool {
    !letter.is_ascii() && !letter.is_control() && !letter.is_whitespace()
}

fn unquoted(name: &str) -> &str {
    name.strip_prefix('"').and_then(|name| name.strip_suffix('"')).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_has_one_spelling() {
        let check = |text: &str, expect: &str| assert_eq!(canonical(text).unwrap(), expect);
        check("name@example.com", "name@example.com");
        check("Name+Tag@EXAMPLE.Com", "Name+Tag@example.com");
        check("o'brien.x@a-b.example", "o'brien.x@a-b.example");
        check("jos\u{e9}@example.com", "jos\u{e9}@example.com");
        check("name@B\u{dc}CHER.example", "name@b\u{fc}cher.example");
        check("user@localhost", "user@localhost");
    }

    #[test]
    fn what_is_no_address_or_could_be_more_than_one_is_refused() {
        for bad in [
            "",
            "@",
            "name",
            "name@",
            "@example.com",
            "a b@example.com",
            "a@b@example.com",
            ".a@example.com",
            "a.@example.com",
            "a..b@example.com",
            "\"a b\"@example.com",
            "a@[127.0.0.1]",
            "a@exam ple.com",
            "a@-example.com",
            "a@example-.com",
            "a@.example.com",
            "a@example..com",
            "a@example.com.",
            "a@example.com>",
            "<a@example.com>",
            "a,b@example.com",
            "a@example.com,b@example.com",
            "a(x)@example.com",
            "a\\@example.com",
            "a;b@example.com",
            "a@example.com\r\nRCPT TO:<b@example.com>",
            "a\r\nDATA\r\n@example.com",
            "a\n@example.com",
            "a\r@example.com",
            "a\0@example.com",
            "a\u{7f}@example.com",
            "a\u{85}b@example.com",
            "a\u{2028}b@example.com",
            "a@ex\u{a0}ample.com",
            "a@example.com\0",
            "a\t@example.com",
        ] {
            assert!(canonical(bad).is_err(), "{bad:?}");
        }
        let long = format!("{}@example.com", "a".repeat(65));
        assert!(canonical(&long).is_err());
        let long = format!("a@{}example.com", "abcdefgh.".repeat(30));
        assert!(canonical(&long).unwrap_err().message.contains("has 283"));
    }

    #[test]
    fn a_mailbox_is_an_address_with_or_without_a_name() {
        let check = |text: &str, name: Option<&str>, address: &str| {
            let mailbox = Mailbox::parse(text).unwrap();
            assert_eq!((mailbox.name.as_deref(), mailbox.address.as_str()), (name, address));
        };
        check("news@Example.com", None, "news@example.com");
        check("<news@example.com>", None, "news@example.com");
        check("The News <news@example.com>", Some("The News"), "news@example.com");
        check("\"News, daily\" <news@example.com>", Some("News, daily"), "news@example.com");
        check("B\u{fc}cher <news@example.com>", Some("B\u{fc}cher"), "news@example.com");
        for bad in
            ["", "<>", "News <news@example.com", "News\r\nBcc: x <n@example.com>", "a <b> <c>"]
        {
            assert!(Mailbox::parse(bad).is_err(), "{bad:?}");
        }
    }
}
