//! JSON objects whose fields are known, read without copying: requests, their parts, and columns of the outbox.
//!
//! A value stays as it stands in the text until it is read, so a value of the wrong type is an [`InvalidField`] with its pointer,
//! and a content is kept byte for byte.

use std::borrow::Cow;
use std::fmt;

use notification::limits::DETAIL_BYTES;
use notification::{ByteString, Bytes};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::value::RawValue;

use super::invalid_field::InvalidField;

/// More fields than any object has.
const SLOTS: usize = 16;

/// An object's values, by the names of `fields`.
#[derive(Debug)]
pub struct Object<'a> {
    fields: &'static [&'static str],
    values: [Option<&'a RawValue>; SLOTS],
}

/// Defect of a text that is parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParseError {
    /// The text is not JSON.
    Syntax(String),
    /// The text is JSON with an invalid field.
    Invalid(InvalidField),
}

/// Reads an object into its slots; the first wrong name is kept, so that a syntax error after it wins.
struct ObjectSeed {
    fields: &'static [&'static str],
}

/// Reads at most `items_max` values, and counts the rest.
struct ListSeed {
    items_max: usize,
}

#[derive(Deserialize)]
struct FieldName<'a>(#[serde(borrow)] Cow<'a, str>);

/// The text of a request, checked to be UTF-8.
pub fn utf8(bytes: Bytes) -> Result<ByteString, ParseError> {
    ByteString::try_from(bytes).map_err(|error| {
        ParseError::Syntax(format!("not UTF-8 from byte {} on", error.valid_up_to() + 1))
    })
}

/// The values of an array, at most `items_max`, and how many there are.
pub fn list(text: &str, items_max: usize) -> Result<(Vec<&RawValue>, usize), ParseError> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let list = ListSeed { items_max }.deserialize(&mut reader);
    Ok(list.and_then(|list| reader.end().map(|()| list))?)
}

/// The text of a string value, or the defect of it.
pub fn text(value: &RawValue) -> Result<Cow<'_, str>, &'static str> {
    let json = value.get();
    match json.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        None => Err("must be a string"),
        // Without an escape the text is what stands in the JSON, so it can be shared.
        Some(plain) if !plain.contains('\\') => Ok(Cow::Borrowed(plain)),
        Some(_) => serde_json::from_str(json)
            .map(Cow::Owned)
            .map_err(|_| "has an escape that is no character"),
    }
}

/// `text` as a part of `whole` if it is one, or a copy.
pub fn share(whole: &ByteString, text: Cow<'_, str>) -> ByteString {
    match text {
        Cow::Borrowed(part) => whole.slice_ref(part),
        Cow::Owned(copy) => copy.into(),
    }
}

// === impl Object ===

impl<'a> Object<'a> {
    /// Reads `json`, an object that has no other fields than `fields`, none of them twice.
    pub fn read(json: &'a str, fields: &'static [&'static str]) -> Result<Self, ParseError> {
        let mut reader = serde_json::Deserializer::from_str(json);
        let object = ObjectSeed { fields }.deserialize(&mut reader);
        let (object, invalid) = object.and_then(|object| reader.end().map(|()| object))?;
        match invalid {
            Some(invalid) => Err(invalid.into()),
            None => Ok(object),
        }
    }

    /// The value of `field` as it stands in the text; absent and `null` are the same.
    pub fn raw(&self, field: &str) -> Option<&'a RawValue> {
        let slot = self.fields.iter().position(|name| *name == field)?;
        self.values.get(slot).copied().flatten().filter(|value| value.get() != "null")
    }

    /// The value of `field`, a string.
    pub fn text(&self, field: &'static str) -> Result<Option<Cow<'a, str>>, InvalidField> {
        let wrong = |message| InvalidField::new(format!("/{field}"), message);
        self.raw(field).map(|value| text(value).map_err(wrong)).transpose()
    }

    /// The value of `field`, which must be there.
    pub fn required<T>(field: &'static str, value: Option<T>) -> Result<T, InvalidField> {
        value.ok_or_else(|| InvalidField::new(format!("/{field}"), "is missing"))
    }

    /// The value of `field`, an object, as a part of `whole`, the text that was read.
    pub fn object(
        &self,
        field: &'static str,
        whole: &ByteString,
    ) -> Result<Option<Bytes>, InvalidField> {
        match self.raw(field).map(RawValue::get) {
            Some(json) if !json.starts_with('{') => {
                Err(InvalidField::new(format!("/{field}"), "must be a JSON object"))
            }
            Some(json) => Ok(Some(whole.as_bytes().slice_ref(json.as_bytes()))),
            None => Ok(None),
        }
    }
}

// === impl ParseError ===

impl From<InvalidField> for ParseError {
    fn from(invalid: InvalidField) -> Self {
        Self::Invalid(invalid)
    }
}

impl From<serde_json::Error> for ParseError {
    fn from(error: serde_json::Error) -> Self {
        match error.classify() {
            Category::Data => {
                let mut message = error.to_string();
                // The library repeats the value that it met, of whatever length.
                message.truncate(message.floor_char_boundary(DETAIL_BYTES));
                Self::Invalid(InvalidField::new("", message))
            }
            Category::Io | Category::Syntax | Category::Eof => {
                Self::Syntax(format!("not JSON: {error}"))
            }
        }
    }
}

// === impl ObjectSeed ===

impl<'de> DeserializeSeed<'de> for ObjectSeed {
    type Value = (Object<'de>, Option<InvalidField>);

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ObjectSeed {
    type Value = (Object<'de>, Option<InvalidField>);

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "an object with {}", self.fields.join(", "))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut values = [None; SLOTS];
        let mut invalid = None;
        while let Some(FieldName(name)) = map.next_key()? {
            let value = map.next_value()?;
            let position = self.fields.iter().position(|field| *field == name);
            match position.and_then(|position| values.get_mut(position)) {
                Some(slot @ None) => *slot = Some(value),
                Some(Some(_)) => invalid = invalid.or_else(|| Some(wrong(&name, "is given twice"))),
                None => {
                    let message = format!("is unknown: the fields are {}", self.fields.join(", "));
                    invalid = invalid.or_else(|| Some(wrong(&name, message)));
                }
            }
        }
        Ok((Object { fields: self.fields, values }, invalid))
    }
}

// === impl ListSeed ===

impl<'de> DeserializeSeed<'de> for ListSeed {
    type Value = (Vec<&'de RawValue>, usize);

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ListSeed {
    type Value = (Vec<&'de RawValue>, usize);

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut values = Vec::new();
        while values.len() < self.items_max
            && let Some(value) = list.next_element()?
        {
            values.push(value);
        }
        // Counted and not kept: the answer says how many there are, and memory stays bounded.
        let mut count = values.len();
        while list.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        Ok((values, count))
    }
}

// === helpers ===

/// A fault of the field called `name`, which may be anything.
fn wrong(name: &str, message: impl Into<String>) -> InvalidField {
    let name: String = name.chars().take(64).collect();
    // `~` before `/`, or the `~1` that stands for a slash would be escaped again (RFC 6901, section 3).
    InvalidField::new(format!("/{}", name.replace('~', "~0").replace('/', "~1")), message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_quotes_the_text_is_cut_by_bytes() {
        let text = format!("\"{}\"", "\u{fc}".repeat(DETAIL_BYTES));
        let error = Object::read(&text, &["to"]);
        let Err(ParseError::Invalid(invalid)) = error else { panic!("{error:?}") };
        let bytes_cut = DETAIL_BYTES - invalid.message.len();
        assert!(bytes_cut < '\u{fc}'.len_utf8(), "{invalid}");
    }

    #[test]
    fn what_is_not_utf_8_is_refused_from_its_first_wrong_byte_on() {
        let text = Bytes::from_static(b"\xc3\xbcber \xff");
        let refused = Err(ParseError::Syntax("not UTF-8 from byte 7 on".to_owned()));
        assert_eq!(utf8(text.slice(..6)).as_deref(), Ok("\u{fc}ber "));
        assert_eq!(utf8(text), refused);
    }
}
