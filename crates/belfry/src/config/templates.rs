//! `[templates.NAME]`: a content that callers name in place of one.

use std::collections::BTreeMap;
use std::path::PathBuf;

use notification::{Bytes, Content, Name};
use pipeline::Channels;
use pipeline::ingest::{TemplateSource, Templates};
use serde::Deserialize;
use toml::{Table, Value};

use super::channels::ChannelConfig;
use super::kinds::ChannelResources;
use super::problem::Mistake;

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
    /// The channel that it is meant for: it is asked at the start whether it takes the template, as the sample makes it.
    channel: Option<Name>,
    /// Variables to try it with at the start. None by default.
    sample: Option<Table>,
}

// === impl TemplateConfig ===

impl TemplateConfig {
    /// All of it as JSON. Reads the file, if one is named.
    pub(super) fn read(&self) -> Result<TemplateSource, Mistake> {
        let payload = match (&self.content, &self.file) {
            (Some(content), None) => to_json("content", content)?,
            (None, Some(file)) => {
                let wrong = |message: String| Mistake::new("file", message);
                let bytes = std::fs::read(file)
                    .map_err(|error| wrong(format!("cannot read {}: {error}", file.display())))?;
                // Only checked: what is sent are the bytes of the file, with its numbers and its order of fields.
                serde_json::from_slice::<serde::de::IgnoredAny>(&bytes)
                    .map_err(|error| wrong(format!("{} is not JSON: {error}", file.display())))?;
                // A line end at the end of the file would be sent with every notification.
                Bytes::copy_from_slice(bytes.trim_ascii())
            }
            _ => return Err(Mistake::new("content", "set either this or `file`")),
        };
        let table = |key, table: &Option<Table>| {
            table.as_ref().map(|table| to_json(key, table)).transpose()
        };
        let options = table("options", &self.options)?.unwrap_or_default();
        let sample = table("sample", &self.sample)?;
        let content = Content { payload, options, fallback: None };
        Ok(TemplateSource { content, channel: self.channel.clone(), sample })
    }

    /// Reads and compiles the template, tries it with the sample, and forgets it.
    pub(super) fn check(
        &self,
        name: &Name,
        channels: &BTreeMap<Name, ChannelConfig>,
    ) -> Option<Mistake> {
        let problem = |key: &str, message| Mistake::new(format!("templates.{name}.{key}"), message);
        let source = match self.read() {
            Ok(source) => source,
            Err(Mistake { path, message }) => return Some(problem(&path, message)),
        };
        let mut built = Channels::default();
        if let Some(channel) = &self.channel {
            let Some(config) = channels.get(channel) else {
                let known: Vec<String> = channels.keys().map(|name| format!("`{name}`")).collect();
                let message = format!(
                    "there is no channel `{channel}`: the channels are {}",
                    known.join(", ")
                );
                return Some(problem("channel", message));
            };
            // What is wrong with the channel is said of the channel.
            if let Ok(channel_built) = config.kind.settings().build(&ChannelResources::default()) {
                built.insert(channel.clone(), channel_built);
            }
        }
        let sources = BTreeMap::from([(name.clone(), source)]);
        let (_, fault) = Templates::compile(&sources, &built).err()?;
        let key = fault.pointer.trim_start_matches('/').replace('/', ".");
        Some(problem(&key, fault.message))
    }
}

fn to_json(key: &str, value: &impl serde::Serialize) -> Result<Bytes, Mistake> {
    let json = serde_json::to_vec(value);
    json.map(Bytes::from).map_err(|error| Mistake::new(key, error.to_string()))
}
