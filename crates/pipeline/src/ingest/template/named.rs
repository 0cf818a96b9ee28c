//! Templates that the configuration names.

use std::collections::BTreeMap;
use std::sync::Arc;

use notification::{Content, Name};

use super::Template;
use crate::Channels;
use crate::ingest::Fault;

/// The named templates, compiled. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Templates {
    names: Arc<[Name]>,
    /// By template and channel: what is HTML differs from one to the other.
    compiled: Arc<BTreeMap<(Name, Name), Arc<Template>>>,
}

// === impl Templates ===

impl Templates {
    /// Compiles `sources` for every one of `channels`. Each is valid JSON, its options an object or empty.
    ///
    /// # Errors
    /// The first template that is none, and why.
    pub fn compile(
        sources: &BTreeMap<Name, Content>,
        channels: &Channels,
    ) -> Result<Self, (Name, Fault)> {
        let mut compiled = BTreeMap::new();
        for (name, source) in sources {
            // Also where there is no channel yet.
            let plain = Template::compile(source, &[]);
            plain.map_err(|fault| (name.clone(), fault))?;
            for (channel, built) in channels.iter() {
                let template = Template::compile(source, built.html_fields())
                    .map_err(|fault| (name.clone(), fault))?;
                compiled.insert((name.clone(), channel.clone()), Arc::new(template));
            }
        }
        Ok(Self { names: sources.keys().cloned().collect(), compiled: Arc::new(compiled) })
    }

    /// The template called `name`, for a channel that is configured.
    pub(in crate::ingest) fn get(
        &self,
        name: &str,
        channel: &Name,
    ) -> Result<Arc<Template>, Fault> {
        let found = name.parse().ok().and_then(|name| self.compiled.get(&(name, channel.clone())));
        found.cloned().ok_or_else(|| {
            let known: Vec<String> = self.names.iter().map(|name| format!("`{name}`")).collect();
            let asked: String = name.chars().take(64).collect();
            let message = match known.as_slice() {
                [] => format!("there is no template {asked:?}: none is configured"),
                _ => format!(
                    "there is no template {asked:?}: the templates are {}",
                    known.join(", ")
                ),
            };
            Fault::new("/template", message)
        })
    }
}
