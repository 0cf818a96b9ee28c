//! Header fields, one behind the other in one text: a request costs no allocation for each.

/// The header fields of a request, in their order.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    text: Vec<u8>,
    /// Where each name begins, where its value does, and where that ends.
    places: Vec<[usize; 3]>,
}

// === impl Fields ===

impl Fields {
    /// Adds a field, whose name is in lower case.
    pub(crate) fn push(&mut self, name: &[u8], value: &[u8]) {
        let begin = self.text.len();
        self.text.extend_from_slice(name);
        self.text.extend_from_slice(value);
        self.places.push([begin, begin + name.len(), self.text.len()]);
    }

    /// Forgets all fields, and keeps their memory.
    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.places.clear();
    }

    /// Each name with its value.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.places.iter().map(|[name, value, end]| {
            let part = |from, to| self.text.get(from..to).unwrap_or_default();
            (part(*name, *value), part(*value, *end))
        })
    }

    /// The value of the first field of this name.
    pub(crate) fn get(&self, name: &str) -> Option<&[u8]> {
        self.iter().find(|(other, _)| *other == name.as_bytes()).map(|(_, value)| value)
    }

    /// Value of the first field of this name as text; empty where there is none.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.get(name).and_then(|value| str::from_utf8(value).ok()).unwrap_or_default()
    }

    /// Size of the list as `SETTINGS_MAX_HEADER_LIST_SIZE` counts it (RFC 9113, section 6.5.2), bytes.
    pub(crate) fn list_bytes(&self) -> usize {
        self.text.len() + 32 * self.places.len()
    }
}

impl From<&http::HeaderMap> for Fields {
    fn from(headers: &http::HeaderMap) -> Self {
        let mut fields = Self::default();
        for (name, value) in headers {
            fields.push(name.as_str().as_bytes(), value.as_bytes());
        }
        fields
    }
}
