//! `[templates.NAME]`: a content that callers name in place of one.

use std::collections::BTreeMap;
use std::path::PathBuf;

use notification::{Bytes, Content, Name};
use pipeline::Channels;
use pipeline::ingest::Templates;
use serde::Deserialize;
use toml::{Table, Value};

use super::Problem;

/// A named template.
#[derive(Debug, Clone, PartialEq, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TemplateConfig {
    /// The content in the channel's own format. Either this or `file`.
    content: Option<Value>,
    /// A file with the content as JSON. Either this or `content`.
    file: Option<PathBuf>,
    /// The channel's options. None by default.
    options: Option<Table>,
}

/// One key that is wrong.
#[derive(Debug, thiserror::Error)]
#[error("{key}: {message}")]
pub(crate) struct Wrong {
    key: &'static str,
    message: String,
}

// === impl TemplateConfig ===

impl TemplateConfig {
    /// Payload and options as JSON. Reads the file, if one is named.
    pub(super) fn read(&self) -> Result<Content, Wrong> {
        let payload = match (&self.content, &self.file) {
            (Some(content), None) => to_json("content", content)?,
            (None, Some(file)) => {
                let wrong = |message| Wrong { key: "file", message };
                let bytes = std::fs::read(file)
                    .map_err(|error| wrong(format!("cannot read {}: {error}", file.display())))?;
                serde_json::from_slice::<serde::de::IgnoredAny>(&bytes)
                    .map_err(|error| wrong(format!("{} is not JSON: {error}", file.display())))?;
                Bytes::copy_from_slice(bytes.trim_ascii())
            }
            _ => {
                let message = "set either this or `file`".to_owned();
                return Err(Wrong { key: "content", message });
            }
        };
        let options = self.options.as_ref().map(|options| to_json("options", options));
        let options = options.transpose()?.unwrap_or_default();
        Ok(Content { payload, options, fallback: None })
    }

    /// Reads and compiles the template, and forgets it.
    pub(super) fn check(&self, name: &Name) -> Option<Problem> {
        let problem = |key: &str, message| Problem::new(format!("templates.{name}.{key}"), message);
        let content = match self.read() {
            Ok(content) => content,
            Err(Wrong { key, message }) => return Some(problem(key, message)),
        };
        let contents = BTreeMap::from([(name.clone(), content)]);
        let (_, fault) = Templates::compile(&contents, &Channels::default()).err()?;
        let key = fault.pointer.trim_start_matches('/').replace('/', ".");
        Some(problem(&key, fault.message))
    }
}

fn to_json(key: &'static str, value: &impl serde::Serialize) -> Result<Bytes, Wrong> {
    let json = serde_json::to_vec(value);
    json.map(Bytes::from).map_err(|error| Wrong { key, message: error.to_string() })
}
