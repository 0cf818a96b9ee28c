//! Blobs: what their parts are made of. Numbers are LEB128 varints; a text or blob is its length and its bytes.

use notification::{ByteString, Bytes};

use crate::StoreError;

/// The first byte of a blob whose shape may change.
pub(crate) const VERSION: u8 = 1;

/// Reads blobs from the front, without copying.
#[derive(Debug)]
pub(crate) struct BlobReader {
    bytes: Bytes,
    pub(crate) position: usize,
}

/// Reads numbers and slices from the front.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ByteReader<'a> {
    bytes: &'a [u8],
    position: usize,
}

// === impl BlobReader ===

impl BlobReader {
    pub(crate) const fn new(bytes: Bytes, position: usize) -> Self {
        Self { bytes, position }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.position >= self.bytes.len()
    }

    pub(crate) fn text(&mut self) -> Result<ByteString, StoreError> {
        ByteString::try_from(self.next()?).map_err(|_| damaged("a text"))
    }

    pub(crate) fn next(&mut self) -> Result<Bytes, StoreError> {
        let range = self.range()?;
        Ok(if range.is_empty() { Bytes::new() } else { self.bytes.slice(range) })
    }

    pub(crate) fn number(&mut self) -> Result<u64, StoreError> {
        let mut input = ByteReader::at(&self.bytes, self.position);
        let number = input.number()?;
        self.position = input.position;
        Ok(number)
    }

    pub(crate) fn range(&mut self) -> Result<std::ops::Range<usize>, StoreError> {
        let mut input = ByteReader::at(&self.bytes, self.position);
        let length = input.slice()?.len();
        self.position = input.position;
        Ok(input.position - length..input.position)
    }
}

// === impl ByteReader ===

impl<'a> ByteReader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self::at(bytes, 0)
    }

    pub(crate) const fn at(bytes: &'a [u8], position: usize) -> Self {
        Self { bytes, position }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.position >= self.bytes.len()
    }

    pub(crate) fn number(&mut self) -> Result<u64, StoreError> {
        let mut number = 0;
        // Ten bytes hold 64 bits: a longer number is damage.
        for shift in (0..64).step_by(7) {
            let &byte = self.bytes.get(self.position).ok_or_else(|| damaged("a number"))?;
            self.position += 1;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(damaged("a number"))
    }

    pub(crate) fn small<T: TryFrom<u64>>(&mut self) -> Result<T, StoreError> {
        T::try_from(self.number()?).map_err(|_| damaged("a number"))
    }

    pub(crate) fn slice(&mut self) -> Result<&'a [u8], StoreError> {
        let length: usize = self.small()?;
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        let slice = rest.get(..length).ok_or_else(|| damaged("a length"))?;
        self.position += length;
        Ok(slice)
    }
}

pub(crate) fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(low_bits(number) | 0x80);
        number >>= 7;
    }
    bytes.push(low_bits(number));
}

const fn low_bits(number: u64) -> u8 {
    (number & 0x7f) as u8
}

pub(crate) fn put_slice(bytes: &mut Vec<u8>, slice: &[u8]) {
    put(bytes, slice.len() as u64);
    bytes.extend_from_slice(slice);
}

pub(crate) fn damaged(what: &str) -> StoreError {
    StoreError::Damaged(format!("{what} cannot be read back"))
}
