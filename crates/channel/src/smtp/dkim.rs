//! DKIM signatures (RFC 6376, Ed25519: RFC 8463), `relaxed/relaxed`.
//!
//! The hash of a body is the same for all mails of a content, so it is made once; a signature then costs the header
//! fields and one private-key operation.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::encoding::{AsDer as _, PublicKeyX509Der};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _, RsaKeyPair};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use net::tls;
use notification::Timestamp;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;

use crate::jwt::sign_rsa;

/// Signs as one domain. Cloning shares the key.
#[derive(Debug, Clone)]
pub(super) struct DkimSigner {
    key: Arc<DkimKey>,
    domain: Arc<str>,
    selector: Arc<str>,
}

/// The hash of a body, base64.
#[derive(Debug, Clone)]
pub(super) struct BodyHash(String);

#[derive(Debug)]
enum DkimKey {
    Rsa(RsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

/// Which fields are signed when they are there: those that a reader sees or acts on (section 5.4.1; RFC 8058, section
/// 4, wants the last two).
const SIGNED: &[&str] = &[
    "from",
    "reply-to",
    "subject",
    "date",
    "message-id",
    "to",
    "mime-version",
    "content-type",
    "content-transfer-encoding",
    "list-unsubscribe",
    "list-unsubscribe-post",
];
/// Named once more than they occur, so that none can be added (section 8.15).
const OVERSIGNED: &[&str] = &["from", "reply-to", "subject", "to", "content-type"];
/// The message about an elliptic curve's key, which is the usual mistake, and about a damaged one.
const WRONG_KEY: &str = "is no key for DKIM, or damaged: it must be an RSA key (PKCS#8 or PKCS#1), which `openssl genrsa 2048` \
                         makes, or an Ed25519 key (PKCS#8), which `openssl genpkey -algorithm ed25519` makes";
/// RFC 8301, section 3.2, wants 2048 at least; the library has no more than 8192.
const RSA_BITS: &str = "which wants 2048 to 8192 of an RSA key: `openssl genrsa 2048` makes one";
const BASE64_LINE_BYTES: usize = 70;

// === impl DkimSigner ===

impl DkimSigner {
    /// Signs for `domain` with the private key in `pem`, whose public half is published under `selector`.
    pub(super) fn new(pem: &str, domain: &str, selector: &str) -> Result<Self, String> {
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|error| {
            format!("is not a private key in PEM form: {}", tls::explain_pem(&error))
        })?;
        let key = match &key {
            PrivateKeyDer::Pkcs1(der) => {
                RsaKeyPair::from_der(der.secret_pkcs1_der()).map(DkimKey::Rsa)
            }
            PrivateKeyDer::Pkcs8(der) => {
                let der = der.secret_pkcs8_der();
                // PKCS#8 holds keys of both kinds. Of two errors RSA's is kept, since only its keys can
                // have the wrong number of bits.
                Ed25519KeyPair::from_pkcs8_maybe_unchecked(der)
                    .map(DkimKey::Ed25519)
                    .or_else(|_| RsaKeyPair::from_pkcs8(der).map(DkimKey::Rsa))
            }
            PrivateKeyDer::Sec1(_) | _ => {
                return Err(WRONG_KEY.to_owned());
            }
        };
        let key = key.map_err(|error| match error.description_() {
            "TooSmall" => format!("has too few bits for DKIM, {RSA_BITS}"),
            "TooLarge" => format!("has too many bits for DKIM, {RSA_BITS}"),
            _ => WRONG_KEY.to_owned(),
        })?;
        Ok(Self { key: Arc::new(key), domain: domain.into(), selector: selector.into() })
    }

    /// The text of the TXT record of `SELECTOR._domainkey.DOMAIN`.
    pub(super) fn record(&self) -> String {
        match &*self.key {
            DkimKey::Rsa(pair) => {
                let der: Option<PublicKeyX509Der<'_>> = pair.public_key().as_der().ok();
                let der = der.as_ref().map_or(&[][..], |der| der.as_ref());
                format!("v=DKIM1; k=rsa; p={}", BASE64_STANDARD.encode(der))
            }
            DkimKey::Ed25519(pair) => {
                let key = BASE64_STANDARD.encode(pair.public_key().as_ref());
                format!("v=DKIM1; k=ed25519; p={key}")
            }
        }
    }

    /// The signature as a header field, with its line's end, over the fields in `heads`, which follow it on the wire.
    /// `None` when the key does not sign.
    pub(super) fn sign(&self, heads: &[&[u8]], body: &BodyHash, now: Timestamp) -> Option<Vec<u8>> {
        let fields: Vec<(String, String)> = heads.iter().flat_map(|head| fields(head)).collect();
        let (mut names, mut input) = (Vec::new(), String::new());
        for signed in SIGNED {
            // None of these occurs twice: callers cannot set them.
            if let Some((name, value)) = fields.iter().find(|(name, _)| name == signed) {
                names.push(name.as_str());
                input.extend([name, ":", value, "\r\n"]);
            }
        }
        names.extend(OVERSIGNED);
        let (domain, selector) = (&self.domain, &self.selector);
        let (algorithm, time, list) = (self.key.algorithm(), now.seconds(), names.join(":\r\n\t"));
        let unsigned = format!(
            "v=1; a={algorithm}; c=relaxed/relaxed; d={domain}; s={selector};\r\n\tt={time}; bh={}; h={list};\r\n\tb=",
            body.0
        );
        // The field itself comes last, with an empty `b=` and without a line's end (RFC 6376, section 3.7).
        input.push_str("dkim-signature:");
        input.push_str(&relaxed(&unsigned));
        let signature = BASE64_STANDARD.encode(self.key.sign(input.as_bytes())?);
        let mut field = format!("DKIM-Signature: {unsigned}").into_bytes();
        // White space within `b=` does not count (RFC 6376, section 3.5), so a long signature is folded.
        for (i, line) in signature.as_bytes().chunks(BASE64_LINE_BYTES).enumerate() {
            if i > 0 {
                field.extend_from_slice(b"\r\n\t");
            }
            field.extend_from_slice(line);
        }
        field.extend_from_slice(b"\r\n");
        Some(field)
    }
}

// === impl BodyHash ===

impl BodyHash {
    /// Of what follows the header fields: the empty line, which is no part of the body, and the body.
    pub(super) fn of(body: &[u8]) -> Self {
        let body = body.strip_prefix(b"\r\n").unwrap_or(body);
        Self(BASE64_STANDARD.encode(digest(&SHA256, &relaxed_body(body))))
    }
}

// === impl DkimKey ===

impl DkimKey {
    const fn algorithm(&self) -> &'static str {
        match self {
            Self::Rsa(_) => "rsa-sha256",
            Self::Ed25519(_) => "ed25519-sha256",
        }
    }

    fn sign(&self, input: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Rsa(pair) => sign_rsa(pair, input).ok(),
            // RFC 8463, section 3: what is signed is the hash.
            Self::Ed25519(pair) => {
                Some(pair.sign(digest(&SHA256, input).as_ref()).as_ref().to_vec())
            }
        }
    }
}

/// Header fields, names in lower case, values relaxed (section 3.4.2).
fn fields(head: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(head);
    let unfolded = text.replace("\r\n\t", "\t").replace("\r\n ", " ");
    let split = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), relaxed(value)))
    };
    unfolded.split("\r\n").filter_map(split).collect()
}

/// Runs of white space as one space, none at the ends.
fn relaxed(value: &str) -> String {
    let is_space = [' ', '\t', '\r', '\n'];
    value.split(is_space).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Section 3.4.4: white space within lines as one space, none at their ends, no empty lines at the end.
fn relaxed_body(body: &[u8]) -> Vec<u8> {
    let mut output = Vec::with_capacity(body.len());
    let mut is_after_space = false;
    for line in body.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        for &byte in line {
            if matches!(byte, b' ' | b'\t') {
                is_after_space = true;
                continue;
            }
            if std::mem::take(&mut is_after_space) {
                output.push(b' ');
            }
            output.push(byte);
        }
        is_after_space = false;
        output.extend_from_slice(b"\r\n");
    }
    while output.ends_with(b"\r\n\r\n") {
        output.truncate(output.len() - 2);
    }
    // Nothing is left of a body that is empty (section 3.4.4), other than in the `simple` form.
    if output == b"\r\n" { Vec::new() } else { output }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An RSA key of 1024 bits.
    const SMALL: &str = "MIICXgIBAAKBgQCm59y1Qy4P3BKM3sykBcl+g61qEutv6Qihzbl/44Xb2BAuX65y\n\
                         5PLkZmGYdJrKNtd/l6RIeq2biOU4MeajpLRX2YAmsPguqnnokm+yiNg/TfPSaG8a\n\
                         vm/QIaEb5OJHyxX0tZZs4f9Y+8IbeSpXxmbyoRxon6Tf8JSaugKSCKLEBwIDAQAB\n\
                         AoGBAJgrlv8wE8Pj6onC7CKzIAUXuriWLU9n0DXtIa3m23kXoZEWLS+Va5ovedWM\n\
                         oj+xBoLO17o5FyVSB2JXpKcYGE7y9FFU45rlL8+IpyOB84/zyOsxRclXUTzuJ+X0\n\
                         57jUpnuqdaLcn/9Rkcv3cSqqNHv8V+jnYxQ1PBjnBEDz+D2RAkEA1ANrX+9EEZ8X\n\
                         iBCtMphhR6MTlhUyVUCB5gD4WUOH+oOrgj7wPTQARSxu95jNuC5ilzhJBGMe40li\n\
                         S3WemQtozwJBAMmIqIuldmL6pZyCwtILQ2So1FZdGfbfjchNQ6mWQARDDnyawFdW\n\
                         HrmfMQx7icaFJFzWpL6Qp2h9w3Lk9B7WT0kCQQCJ8cOeQt5mHL5B0J/wSIcbBjcL\n\
                         MrVyFKuwDDeKVM8Xpy4ja3ICUGBQoa19udU4Hi4VuBCCI0AIoEmtUVUkvPCvAkEA\n\
                         uSS5qmjcpLudT3Z1Yh+Ez0GmqJypULo5d607nt1wfDnaYjCMyO9OFLshhVUs0lrY\n\
                         eA2clZEwqnb3CmM5veamOQJAZrL6LE62TQpMyDjjHyMmMmWV7wIR9Ub8/fUXHWA8\n\
                         cboEJmEkAq0d3quO5XvkJPMp9clP5nbogSxA4u7fHgkPRw==";

    #[test]
    fn the_examples_of_the_standard_are_relaxed_as_it_says() {
        // RFC 6376, section 3.4.5.
        let head = b"A: X\r\nB : Y\t\r\n\tZ  \r\n";
        let found: Vec<String> = fields(head)
            .into_iter()
            .map(|(name, value)| format!("{}:{value}", name.trim()))
            .collect();
        assert_eq!(found, ["a:X", "b:Y Z"]);
        assert_eq!(relaxed_body(b" C \r\nD \t E\r\n\r\n\r\n"), b" C\r\nD E\r\n");
        assert_eq!(relaxed_body(b""), b"");
        assert_eq!(relaxed_body(b"\r\n\r\n"), b"");
    }

    #[test]
    fn what_is_no_key_of_the_right_kind_is_refused() {
        let check = |pem: &str, expect: &str| {
            let error = DkimSigner::new(pem, "example.com", "s").unwrap_err();
            assert!(error.starts_with(expect), "{pem}: {error}");
        };
        let wrong = "is no key for DKIM, or damaged: it must be an RSA key";
        check("", "is not a private key in PEM form: ");
        check("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", wrong);
        check("-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n", wrong);
        check(&rcgen::KeyPair::generate().unwrap().serialize_pem(), wrong);
        // `openssl genrsa -traditional 1024`.
        let small =
            format!("-----BEGIN RSA PRIVATE KEY-----\n{SMALL}\n-----END RSA PRIVATE KEY-----\n");
        check(
            &small,
            "has too few bits for DKIM, which wants 2048 to 8192 of an RSA key: `openssl",
        );
    }
}
