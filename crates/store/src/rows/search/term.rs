//! Terms: what a notification can be found by, as a number.

use std::hash::Hasher as _;

use notification::Name;
use siphasher::sip::SipHasher13;

use crate::Filter;

/// A thing that a notification can be found by: a keyed hash of its kind, its tenant and its value. Two values may have the same term, so
/// whatever is found by one is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Term(pub(crate) u64);

/// The key of all terms of a store, drawn once. With another key, values that collide do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TermKey(pub(crate) [u64; 2]);

/// The kind of a term: one that is new gets a number of its own here. Kinds are never numbered anew: they are in stored terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TermKind {
    Recipient = 1,
    ExternalId = 2,
    Tag = 3,
    Tenant = 4,
    Channel = 5,
}

/// The bit in which the order of signed numbers differs from that of unsigned ones.
const SIGN: u64 = 1 << 63;

// === impl Term ===

impl Term {
    /// The term as a column, which databases order by its sign.
    pub(crate) const fn to_column(self) -> i64 {
        (self.0 ^ SIGN).cast_signed()
    }

    pub(crate) const fn from_column(column: i64) -> Self {
        Self(column.cast_unsigned() ^ SIGN)
    }
}

// === impl TermKey ===

impl TermKey {
    /// The term of the notifications of `tenant` that are to `recipient` or may fall back to it, on every channel.
    pub(crate) fn recipient(self, tenant: &str, recipient: &str) -> Term {
        self.term(TermKind::Recipient, tenant, recipient)
    }

    /// The term of the notifications of `tenant` with this external id.
    pub(crate) fn external_id(self, tenant: &str, external_id: &str) -> Term {
        self.term(TermKind::ExternalId, tenant, external_id)
    }

    /// The term of the notifications of `tenant` with this tag.
    pub(crate) fn tag(self, tenant: &str, tag: &str) -> Term {
        self.term(TermKind::Tag, tenant, tag)
    }

    /// The term of the stretches of batches in which `tenant` has any.
    pub(crate) fn tenant(self, tenant: &str) -> Term {
        self.term(TermKind::Tenant, tenant, "")
    }

    /// The term of the stretches of batches in which `tenant` has any on this channel; without one, in which any tenant has.
    pub(crate) fn channel(self, tenant: Option<&str>, channel: &str) -> Term {
        // No tenant has an empty name.
        self.term(TermKind::Channel, tenant.unwrap_or_default(), channel)
    }

    /// The term of the stretches of batches in which there may be any that `filter` lists; `None` if that may be in all.
    pub(crate) fn of_stretches(self, filter: &Filter) -> Option<Term> {
        let tenant = filter.tenant.as_ref().map(Name::as_str);
        match (tenant, &filter.channel) {
            (_, Some(channel)) => Some(self.channel(tenant, channel.as_str())),
            (Some(tenant), None) => Some(self.tenant(tenant)),
            (None, None) => None,
        }
    }

    /// The term by which what `filter` lists is found, the one that the fewest notifications have if there are several; `None` if the
    /// index does not help.
    pub(crate) fn of_filter(self, filter: &Filter) -> Option<Term> {
        let Filter { recipient, external_id, tag, .. } = filter;
        let tenant = filter.tenant.as_ref()?.as_str();
        match (recipient, external_id, tag) {
            (Some(recipient), _, _) => Some(self.recipient(tenant, recipient)),
            (None, Some(external_id), _) => Some(self.external_id(tenant, external_id)),
            (None, None, Some(tag)) => Some(self.tag(tenant, tag)),
            (None, None, None) => None,
        }
    }

    fn term(self, kind: TermKind, tenant: &str, value: &str) -> Term {
        let Self([one, other]) = self;
        let mut hasher = SipHasher13::new_with_keys(one, other);
        hasher.write(&[kind as u8]);
        // With its length, so that no two pairs are written alike. Little-endian: a store may move to another machine.
        hasher.write(&(tenant.len() as u64).to_le_bytes());
        hasher.write(tenant.as_bytes());
        hasher.write(value.as_bytes());
        Term(hasher.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_is_of_the_tenant_and_the_recipient_and_stays_as_it_is_stored() {
        let key = TermKey([1, 2]);
        // Stored: a change of this number makes every index worthless.
        assert_eq!(key.recipient("tenant", "someone@example.com"), Term(0x4a64_87e5_4dde_3a56));
        assert_eq!(key.external_id("tenant", "user 42"), Term(0xd208_374d_635b_debe));
        assert_eq!(key.tag("tenant", "news"), Term(0x47f2_2193_c34d_f8c0));
        assert_eq!(key.tenant("tenant"), Term(0x5af3_72f4_7acb_aa90));
        assert_eq!(key.channel(Some("tenant"), "mail"), Term(0x315f_5277_c692_fbb7));
        let terms = [("a", "bc"), ("ab", "c"), ("", "abc"), ("abc", "")];
        let mut terms: Vec<Term> = terms.map(|(of, to)| key.recipient(of, to)).to_vec();
        terms.push(TermKey([2, 1]).recipient("a", "bc"));
        terms.sort();
        terms.dedup();
        assert_eq!(terms.len(), 5);
    }

    #[test]
    fn columns_are_in_the_order_of_terms() {
        let terms = [0, 1, SIGN - 1, SIGN, u64::MAX].map(Term);
        assert!(terms.map(Term::to_column).is_sorted());
        assert_eq!(terms.map(|term| Term::from_column(term.to_column())), terms);
    }
}
