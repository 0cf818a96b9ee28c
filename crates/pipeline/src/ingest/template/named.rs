//! Templates that the configuration names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use notification::{Bytes, Content, Name};

use super::{Template, Variables};
use crate::Channels;
use crate::ingest::InvalidField;
use crate::ingest::content::check_content;

/// A named template as the configuration has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TemplateSource {
    /// Valid JSON, its options an object or empty.
    pub content: Content,
    /// Channel that the template is meant for; the content is checked against it.
    pub channel: Option<Name>,
    /// Variables for a trial rendering (a JSON object).
    pub sample: Option<Bytes>,
}

/// A named template as callers are told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedTemplate {
    /// As it was written.
    pub content: Content,
    /// Channel that it is meant for.
    pub channel: Option<Name>,
    /// The variables that it uses, also those that need not be given, as paths such as `user.name`.
    pub variables: BTreeSet<String>,
}

/// The named templates, compiled. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Templates {
    named: Arc<BTreeMap<Name, NamedTemplate>>,
    /// Compiled templates by template and channel: the fields that are HTML differ from one channel to another.
    compiled: Arc<BTreeMap<(Name, Name), Arc<Template>>>,
}

// === impl Templates ===

impl Templates {
    /// Compiles `sources` for every one of `channels`, and tries those that can be tried.
    ///
    /// # Errors
    /// The first template that cannot be used, and why.
    pub fn compile(
        sources: &BTreeMap<Name, TemplateSource>,
        channels: &Channels,
    ) -> Result<Self, (Name, InvalidField)> {
        let (mut named, mut compiled) = (BTreeMap::new(), BTreeMap::new());
        for (name, source) in sources {
            let fault = |invalid| (name.clone(), invalid);
            // Also where there is no channel yet.
            let plain = Template::compile(&source.content, &[]).map_err(fault)?;
            let of_channels = source.compile(&plain, channels).map_err(fault)?;
            let of_channels = of_channels
                .into_iter()
                .map(|(channel, template)| ((name.clone(), channel), template));
            compiled.extend(of_channels);
            named.insert(name.clone(), source.named(&plain));
        }
        Ok(Self { named: Arc::new(named), compiled: Arc::new(compiled) })
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&Name, &NamedTemplate)> {
        self.named.iter()
    }

    /// The template called `name`, for a channel that is configured.
    pub(in crate::ingest) fn get(
        &self,
        name: &str,
        channel: &Name,
    ) -> Result<Arc<Template>, InvalidField> {
        let found = name.parse().ok().and_then(|name| self.compiled.get(&(name, channel.clone())));
        found.cloned().ok_or_else(|| {
            let known: Vec<String> = self.named.keys().map(|name| format!("`{name}`")).collect();
            let asked: String = name.chars().take(64).collect();
            let message = match known.as_slice() {
                [] => format!("there is no template {asked:?}: none is configured"),
                _ => format!(
                    "there is no template {asked:?}: the templates are {}",
                    known.join(", ")
                ),
            };
            InvalidField::new("/template", message)
        })
    }
}

// === impl TemplateSource ===

impl TemplateSource {
    /// The template as it is told of; `plain` is compiled for no channel.
    fn named(&self, plain: &Template) -> NamedTemplate {
        let (content, channel) = (self.content.clone(), self.channel.clone());
        NamedTemplate { content, channel, variables: plain.variables() }
    }

    /// The template for each of `channels`; `plain` is compiled for none.
    fn compile(
        &self,
        plain: &Template,
        channels: &Channels,
    ) -> Result<Vec<(Name, Arc<Template>)>, InvalidField> {
        self.render_sample(plain)?;
        let mut compiled = Vec::new();
        for (name, channel) in channels.iter() {
            let template = Template::compile(&self.content, channel.html_fields())?;
            if self.channel.as_ref() == Some(name)
                && let Some(content) = self.render_sample(&template)?
            {
                check_content((&**channel, None), &content).map_err(|invalid| {
                    match self.sample {
                        Some(_) => InvalidField::new(
                            invalid.pointer,
                            format!("with the sample, {}", invalid.message),
                        ),
                        None => invalid,
                    }
                })?;
            }
            compiled.push((name.clone(), Arc::new(template)));
        }
        Ok(compiled)
    }

    /// The content that it would send, if that can be known.
    fn render_sample(&self, template: &Template) -> Result<Option<Content>, InvalidField> {
        if self.sample.is_none() && !template.is_constant() {
            return Ok(None);
        }
        let in_sample = |invalid: InvalidField| match invalid.pointer.strip_prefix("/variables") {
            Some(rest) => InvalidField::new(format!("/sample{rest}"), invalid.message),
            None => invalid,
        };
        let variables = Variables::read(self.sample.as_deref().unwrap_or_default());
        let content = variables.and_then(|variables| template.render(&variables));
        content.map(Some).map_err(in_sample)
    }
}
