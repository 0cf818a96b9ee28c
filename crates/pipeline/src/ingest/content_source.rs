//! The source of a notification's content: the caller's own, or a template.

use std::sync::Arc;

use channel::Channel;
use notification::{Content, Name};

use super::InvalidField;
use super::catalog::Catalog;
use super::submission::Submission;
use super::template::{Template, Variables};

/// The source of a content.
#[derive(Debug)]
pub(super) enum ContentSource {
    /// A content for all recipients, unchanged.
    Plain(Content),
    /// Rendered with variables.
    Template(Arc<Template>),
}

// === impl ContentSource ===

impl ContentSource {
    /// The source that `submission` names, for the channel that it names.
    pub(super) fn new(
        catalog: &Catalog,
        (name, channel): (&Name, &dyn Channel),
        submission: &Submission<'_>,
    ) -> Result<Self, InvalidField> {
        let content = || Content {
            payload: submission.content.clone(),
            options: submission.options.clone(),
            fallback: None,
        };
        Ok(match (&submission.template, &submission.variables) {
            (None, None) => Self::Plain(content()),
            (None, Some(_)) => {
                Self::Template(Arc::new(Template::compile(&content(), channel.html_fields())?))
            }
            (Some(_), _) if !submission.options.is_empty() => {
                return Err(InvalidField::new(
                    "/options",
                    "are part of the template: leave them out",
                ));
            }
            (Some(template), _) => Self::Template(catalog.templates.get(template, name)?),
        })
    }

    /// The content with `variables`. A fault names the string that could not be rendered.
    pub(super) fn render(&self, variables: &Variables) -> Result<Content, InvalidField> {
        match self {
            Self::Plain(content) => Ok(content.clone()),
            Self::Template(template) => template.render(variables),
        }
    }

    /// True if all recipients are sent the same bytes.
    pub(super) fn is_constant(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Template(template) => template.is_constant(),
        }
    }

    /// The content as the caller wrote it.
    pub(super) fn written(&self) -> Content {
        match self {
            Self::Plain(content) => content.clone(),
            Self::Template(template) => template.source(),
        }
    }
}
