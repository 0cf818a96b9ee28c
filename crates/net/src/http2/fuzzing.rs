//! Entry of the fuzzer: an input of bytes is played to a connection, which must survive to the end of it.
//!
//! `crates/net/fuzz` calls this, and the tests play its corpus.

#![expect(clippy::unwrap_used, reason = "a panic is what a fuzzer looks for")]

use fastrand::Rng;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::hpack::{HpackDecoder, HpackEncoder};
use super::playing;
use super::testing::TestHead;
use crate::request_head::RequestHead as _;

type HeaderField = (Vec<u8>, Vec<u8>);

/// Plays bytes of a server on a connection with requests under way ([`playing`]). The first two bytes of the input are the seed
/// of all that happens beside.
///
/// # Panics
/// When a rule is broken.
pub fn reader(input: &[u8]) {
    if let Some((seed, bytes)) = input.split_first_chunk() {
        playing::play(bytes, &mut course(*seed));
    }
}

fn course(seed: [u8; 2]) -> Rng {
    Rng::with_seed(u16::from_be_bytes(seed).into())
}

/// Reads header blocks of one connection, and writes what they say as requests of another one: these must come back as they
/// were. In front of each block there are two bytes: what the other connection's table may have, in units of 32 bytes, and the
/// length of the block.
///
/// # Panics
/// When a rule is broken.
pub fn header_blocks(mut input: &[u8]) {
    let (mut decoder, mut encoder, mut reader) =
        (HpackDecoder::default(), HpackEncoder::default(), HpackDecoder::default());
    while let Some(([table, length], rest)) = input.split_first_chunk() {
        let (block, behind) = rest.split_at(rest.len().min(usize::from(*length)));
        input = behind;
        let mut fields = Vec::new();
        let outcome = decoder.decode(block, |name, value, _| {
            fields.push((name.to_vec(), value.to_vec()));
            value.len() % 2 == 0
        });
        decoder.check();
        let request = request_of(&fields);
        encoder.allow(usize::from(*table) * 32);
        // The second time much of it comes into the table, the third time it is there.
        for _ in 0..3 {
            let (mut block, mut read) = (Vec::new(), Vec::new());
            encoder.encode(&request, &mut block);
            let take = |name: &[u8], value: &[u8], _| {
                read.push((name.to_vec(), value.to_vec()));
                false
            };
            reader.decode(&block, take).unwrap();
            reader.check();
            assert_eq!(read, fields_of(&request));
        }
        if outcome.is_err() {
            return;
        }
    }
}

/// A request with those of `fields` that a request may have: one half shared, one its own. Every fourth value is sensitive.
fn request_of(fields: &[HeaderField]) -> TestHead {
    let (mut path, mut shared, mut own) = ("/".to_owned(), HeaderMap::new(), HeaderMap::new());
    for (number, (name, value)) in fields.iter().enumerate() {
        if name == b":path" {
            path = String::from_utf8_lossy(value).into_owned();
        }
        if let Ok(name) = HeaderName::from_bytes(name)
            && let Ok(mut value) = HeaderValue::from_bytes(value)
        {
            value.set_sensitive(number % 4 == 3);
            let part = if number < fields.len() / 2 { &mut shared } else { &mut own };
            part.append(name, value);
        }
    }
    let mut request = TestHead::new(&path, shared);
    request.own = own;
    if !request.is_writable() {
        "/".clone_into(&mut request.path);
    }
    request
}

fn fields_of(request: &TestHead) -> Vec<HeaderField> {
    let field = |name: &str, value: &[u8]| (name.into(), value.into());
    let mut fields = vec![field(":method", b"POST"), field(":scheme", b"https")];
    fields.push(field(":path", request.path.as_bytes()));
    let shared = request.address.all_fields().chain(request.shared.all_fields());
    fields.extend(shared.map(|(name, value, _)| (name.into(), value.into())));
    let own = request.own.iter();
    fields.extend(own.map(|(name, value)| (name.as_str().into(), value.as_bytes().into())));
    fields
}

#[cfg(test)]
#[path = "fuzzing_tests.rs"]
mod tests;
