//! Addresses that mail may be from, as grants of keys name them.

use std::fmt;
use std::str::FromStr;

use crate::Invalid;
use crate::smtp::address::{canonical, domain_of};

/// An address that mail may be from, or all of a domain: `news@example.com`, `@example.com`. A domain below it is another one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FromPattern(
    /// In one spelling: the domain as DNS has it.
    String,
);

// === impl FromPattern ===

impl FromPattern {
    /// True if `address`, spelled as [`Channel::sender_address`](crate::Channel::sender_address) does, is this one, or of this domain.
    pub fn covers(&self, address: &str) -> bool {
        match self.domain() {
            Some(domain) => domain_of(address) == domain,
            None => self.0 == address,
        }
    }

    /// True if all that `other` covers is covered.
    pub fn covers_all_of(&self, other: &Self) -> bool {
        self == other || self.covers(&other.0) && other.domain().is_none()
    }

    /// The domain, if it is one.
    fn domain(&self) -> Option<&str> {
        self.0.strip_prefix('@')
    }
}

impl FromStr for FromPattern {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let Some(domain) = text.strip_prefix('@') else {
            return canonical(text).map(|address| Self(address.into_owned()));
        };
        // The rules of domains are those of addresses: with any name before it, it must be one.
        let address = format!("any@{domain}");
        let address = canonical(&address)?;
        Ok(Self(format!("@{}", domain_of(&address))))
    }
}

impl fmt::Display for FromPattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> FromPattern {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_covers_itself_and_a_domain_its_own_addresses() {
        let check = |text: &str, address: &str| pattern(text).covers(&canonical(address).unwrap());
        assert!(check("news@Example.com", "news@example.COM"));
        assert!(check("@Example.com", "anything@example.com"));
        assert!(check("@b\u{fc}cher.example", "news@xn--bcher-kva.example"));
        assert!(!check("news@example.com", "News@example.com"), "only its server knows better");
        assert!(!check("news@example.com", "news@example.org"));
        assert!(!check("@example.com", "news@sub.example.com"));
        assert!(!check("@example.com", "news@notexample.com"));
    }

    #[test]
    fn what_one_covers_of_another() {
        let check = |own: &str, other: &str| pattern(own).covers_all_of(&pattern(other));
        assert!(check("@example.com", "news@example.com"));
        assert!(check("@example.com", "@example.com"));
        assert!(check("news@example.com", "news@example.com"));
        assert!(!check("news@example.com", "@example.com"));
        assert!(!check("@example.com", "@example.org"));
    }

    #[test]
    fn it_is_written_as_it_is_read_and_nothing_else_is() {
        for text in ["news@example.com", "@example.com"] {
            assert_eq!(pattern(text).to_string(), text);
        }
        for bad in ["", "@", "example.com", "*@example.com ", "@*.example.com", "@a@example.com"] {
            assert!(bad.parse::<FromPattern>().is_err(), "{bad:?}");
        }
    }
}
