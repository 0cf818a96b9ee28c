//! Addresses: which are accepted, in one spelling each.

use std::borrow::Cow;

use crate::Invalid;
use net::endpoint::Host;

/// An address, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mailbox {
    pub(super) name: Option<String>,
    /// ASCII, its domain in lower case.
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
        // The last one: a quoted name may hold others.
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

/// The one spelling of an address: its domain as DNS has it, in lower case. Refuses what is none: the local part is a
/// dot-atom, the domain a name and no address.
pub(crate) fn canonical(address: &str) -> Result<Cow<'_, str>, Invalid> {
    let refuse = |message: &str| Err(Invalid::new(message));
    let Some((local, domain)) = address.rsplit_once('@') else {
        return refuse("is not an e-mail address such as name@example.com");
    };
    if local.len() > LOCAL_BYTES_MAX {
        return refuse("has more than 64 bytes before the @");
    }
    if !local.is_ascii() {
        return refuse(
            "has letters before the @ that are not ASCII: such a mailbox takes mail by SMTPUTF8 (RFC 6531) only, which is not offered",
        );
    }
    if !local.split('.').all(is_atom) {
        return refuse(
            "has something before the @ that is not letters, digits, !#$%&'*+-/=?^_`{|}~ and single dots between them",
        );
    }
    let ascii = to_ascii(domain)?;
    let bytes = local.len() + "@".len() + ascii.len();
    if bytes > ADDRESS_BYTES_MAX {
        let message = format!("must have at most {ADDRESS_BYTES_MAX} bytes, has {bytes}");
        return Err(Invalid::new(message));
    }
    // An address would choose the server itself, whatever way it is written: [127.0.0.1], 127.0.0.1, 0x7f.1.
    if !is_domain(&ascii) || !matches!(Host::parse(&ascii), Ok(Host::Name(_))) {
        return refuse("has something after the @ that is not a domain such as example.com");
    }
    // The case of the local part stays: only its own server knows whether it counts (RFC 5321, section 2.4).
    Ok(match ascii {
        Cow::Borrowed(_) => Cow::Borrowed(address),
        Cow::Owned(ascii) => Cow::Owned(format!("{local}@{ascii}")),
    })
}

/// The part of a checked address behind its `@`.
pub(crate) fn domain_of(address: &str) -> &str {
    address.rsplit_once('@').map_or("", |(_, domain)| domain)
}

/// True if `text` is a domain name as DNS has it.
pub(super) fn is_domain(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let is_label = |label: &str| {
        (1..=LABEL_BYTES_MAX).contains(&label.len())
            && label.bytes().all(is_letter)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= DOMAIN_BYTES_MAX && text.split('.').all(is_label)
}

/// A domain in lower case, with A-labels for international ones (RFC 5891). Only what DNS can hold in no other way is
/// translated: letters that stand for ASCII ones, and dots that are none, would make it another domain than it seems.
fn to_ascii(domain: &str) -> Result<Cow<'_, str>, Invalid> {
    if domain.is_ascii() {
        let is_lower = !domain.bytes().any(|byte| byte.is_ascii_uppercase());
        return Ok(if is_lower { domain.into() } else { domain.to_ascii_lowercase().into() });
    }
    let is_faithful = |ascii: &String| {
        let mut labels = ascii.split('.');
        let is_same = |label: &str| {
            labels.next().is_some_and(|ascii| label.is_ascii() || ascii.starts_with("xn--"))
        };
        domain.split('.').all(is_same) && labels.next().is_none()
    };
    // Bounds the work on what is too long for DNS anyway.
    let ascii = Some(domain).filter(|domain| domain.len() <= 4 * DOMAIN_BYTES_MAX);
    let ascii = ascii.and_then(|domain| idna::domain_to_ascii_strict(domain).ok());
    let Some(ascii) = ascii.filter(is_faithful) else {
        return Err(Invalid::new(
            "has an international domain after the @ that has no form for DNS (IDNA): write it as it is registered",
        ));
    };
    Ok(ascii.into())
}

/// `atext` of RFC 5322, section 3.2.3.
fn is_atom(text: &str) -> bool {
    let is_letter = |letter: char| match letter {
        '!' | '#'..='\'' | '*' | '+' | '-' | '/' | '=' | '?' | '^'..='~' => true,
        _ => letter.is_ascii_alphanumeric(),
    };
    !text.is_empty() && text.chars().all(is_letter)
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
        check("user@localhost", "user@localhost");
        check("name@b\u{fc}cher.example", "name@xn--bcher-kva.example");
        check("Name@B\u{dc}CHER.Example", "Name@xn--bcher-kva.example");
        check("name@bu\u{308}cher.example", "name@xn--bcher-kva.example");
        check("name@XN--BCHER-KVA.example", "name@xn--bcher-kva.example");
        check("name@stra\u{df}e.example", "name@xn--strae-oqa.example");
        check("name@\u{4f8b}\u{3048}.\u{30c6}\u{30b9}\u{30c8}", "name@xn--r8jz45g.xn--zckzah");
        check("name@\u{645}\u{62b}\u{627}\u{644}.example", "name@xn--mgbh0fb.example");
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
            "a@[IPv6:::1]",
            "a@[x:y]",
            "a@127.0.0.1",
            "a@2130706433",
            "a@0x7f.1",
            "a@0177.0.0.1",
            "a@\u{2460}\u{2461}\u{2466}.\u{24ea}.\u{24ea}.\u{2460}",
            "a@127\u{3002}0\u{3002}0\u{3002}1",
            "a@\u{24db}\u{24de}\u{24d2}\u{24d0}\u{24db}\u{24d7}\u{24de}\u{24e2}\u{24e3}",
            "a@\u{ff45}xample.com",
            "a@example\u{3002}com",
            "a@b\u{fc}cher\u{3002}example",
            "a@b\u{fc}cher..example",
            "a@b\u{fc}cher.example.",
            "a@-b\u{fc}cher.example",
            "a@\u{301}x.example",
            "a@b\u{fc}\u{200b}\u{202e}cher.example",
            "a@\u{fffd}.example",
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
        let long = format!("a@{}.example", "\u{fc}".repeat(60));
        assert!(canonical(&long).is_err(), "its label has more than 63 bytes");
        let long = format!("a@{}example", "\u{fc}.".repeat(100_000));
        assert!(canonical(&long).is_err());
        let long = format!("a@{}example.com", "abcdefgh.".repeat(30));
        assert!(canonical(&long).unwrap_err().message.contains("has 283"));
    }

    #[test]
    fn an_international_mailbox_is_refused_by_the_name_of_what_is_missing() {
        for address in ["jos\u{e9}@example.com", "jos\u{e9}@b\u{fc}cher.example"] {
            let message = canonical(address).unwrap_err().message;
            assert!(
                message.contains("SMTPUTF8 (RFC 6531) only, which is not offered"),
                "{message}"
            );
        }
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
        check(
            "B\u{fc}cher <a@b\u{fc}cher.example>",
            Some("B\u{fc}cher"),
            "a@xn--bcher-kva.example",
        );
        for bad in
            ["", "<>", "News <news@example.com", "News\r\nBcc: x <n@example.com>", "a <b> <c>"]
        {
            assert!(Mailbox::parse(bad).is_err(), "{bad:?}");
        }
    }
}
