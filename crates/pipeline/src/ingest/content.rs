//! What is sent: a content as it was given, or what a template makes of it, and what stands in for it.

use std::sync::Arc;

use channel::Channel;
use notification::limits::{
    CONTENT_DEPTH, FALLBACK_BYTES, FALLBACKS, OPTIONS_BYTES, PAYLOAD_BYTES,
};
use notification::{Alternative, Bytes, Content, Fallback, Name};

use super::check::{Catalog, FallbackTerms, Fault, Recipient, Terms, channel, recipient};
use super::template::{Template, Variables};

/// What is to be sent.
pub(super) enum What {
    Plain(Content),
    Personal(Personal),
}

/// A content that each recipient of a broadcast gets its own of.
#[derive(Debug)]
pub(super) struct Personal {
    pub(super) template: Arc<Template>,
    common: Variables,
}

/// What a notification would send, whatever its channel says to that.
pub(super) fn rendered(catalog: &Catalog, terms: &Terms<'_>) -> Result<Content, Fault> {
    let (name, channel) = channel(&catalog.channels, &terms.channel)?;
    What::new(catalog, (name, &**channel), terms)?.render()
}

/// Checks what stands in for a notification as if each were sent by itself.
pub(super) fn fallback(
    catalog: &Catalog,
    terms: &Terms<'_>,
) -> Result<Option<Arc<Fallback>>, Fault> {
    if terms.fallback.is_empty() {
        return Ok(None);
    }
    if terms.fallback.len() > FALLBACKS {
        let message = format!("must have at most {FALLBACKS} items, has {}", terms.fallback.len());
        return Err(Fault::new("/fallback", message));
    }
    let mut next = Vec::with_capacity(terms.fallback.len());
    for (index, item) in terms.fallback.iter().enumerate() {
        let alternative = alternative(catalog, item, terms.variables.as_ref());
        next.push(alternative.map_err(|fault| fault.within(&format!("/fallback/{index}")))?);
    }
    let bytes: usize = next.iter().map(Alternative::bytes).sum();
    if bytes > FALLBACK_BYTES {
        let message = format!("must have at most {FALLBACK_BYTES} bytes together, has {bytes}");
        return Err(Fault::new("/fallback", message));
    }
    Ok(Some(Arc::new(Fallback { of: None, next })))
}

fn alternative(
    catalog: &Catalog,
    item: &FallbackTerms<'_>,
    variables: Option<&Bytes>,
) -> Result<Alternative, Fault> {
    let (name, channel) = channel(&catalog.channels, &item.channel)?;
    let terms = Terms {
        content: item.content.clone(),
        options: item.options.clone(),
        template: item.template.clone(),
        variables: variables.cloned(),
        ..Terms::default()
    };
    let content = What::new(catalog, (name, &**channel), &terms)?.render()?;
    check_content(&**channel, &content)?;
    let Recipient { to, destination } = recipient(&**channel, item.to.clone())?;
    let Content { payload, options, fallback: _ } = content;
    Ok(Alternative { channel: name.clone(), destination, recipient: to, payload, options })
}

// === impl Personal ===

impl Personal {
    /// What the recipient with these `variables` is sent; nothing of its own when everybody gets the same. Faults are its
    /// variables'.
    pub(super) fn content_for(
        &self,
        channel: &dyn Channel,
        variables: Option<Bytes>,
    ) -> Result<Option<Content>, Fault> {
        let own = Variables::read(&variables.unwrap_or_default())?;
        if self.template.is_constant() {
            return Ok(None);
        }
        let rendered = self.template.render(&own.over(&self.common)).and_then(|content| {
            check_content(channel, &content)?;
            Ok(content)
        });
        rendered.map(Some).map_err(|fault| match fault.pointer.strip_prefix("/variables") {
            Some(_) => fault,
            None => Fault::new("/variables", format!("with these, {fault}")),
        })
    }
}

// === impl What ===

impl What {
    pub(super) fn new(
        catalog: &Catalog,
        (name, channel): (&Name, &dyn Channel),
        terms: &Terms<'_>,
    ) -> Result<Self, Fault> {
        let content = || Content {
            payload: terms.content.clone(),
            options: terms.options.clone(),
            fallback: None,
        };
        let template = match (&terms.template, &terms.variables) {
            (None, None) => return Ok(Self::Plain(content())),
            (None, Some(_)) => Arc::new(Template::compile(&content(), channel.html_fields())?),
            (Some(_), _) if !terms.options.is_empty() => {
                return Err(Fault::new("/options", "are part of the template: leave them out"));
            }
            (Some(template), _) => catalog.templates.get(template, name)?,
        };
        let common = Variables::read(terms.variables.as_deref().unwrap_or_default())?;
        Ok(Self::Personal(Personal { template, common }))
    }

    pub(super) fn render(&self) -> Result<Content, Fault> {
        match self {
            Self::Plain(content) => Ok(content.clone()),
            Self::Personal(personal) => personal.template.render(&personal.common),
        }
    }
}

// === helpers ===

/// Checks a content for `channel`, with the bounds of all channels.
pub(super) fn check_content(channel: &dyn Channel, content: &Content) -> Result<(), Fault> {
    let Content { payload, options, fallback: _ } = content;
    if payload.len() > PAYLOAD_BYTES {
        let message = format!("must have at most {PAYLOAD_BYTES} bytes, has {}", payload.len());
        return Err(Fault::new("/content", message));
    }
    if options.len() > OPTIONS_BYTES {
        let message = format!("must have at most {OPTIONS_BYTES} bytes, has {}", options.len());
        return Err(Fault::new("/options", message));
    }
    if is_too_deep(payload) {
        return Err(Fault::new(
            "/content",
            format!("is nested deeper than {CONTENT_DEPTH} levels"),
        ));
    }
    let Err(invalid) = channel.check_content(payload, options) else { return Ok(()) };
    // A channel names a part without saying whose: a payload that is fine on its own puts it on the options.
    let options_are_wrong = !options.is_empty() && channel.check_content(payload, b"").is_ok();
    Err(Fault::below(if options_are_wrong { "/options" } else { "/content" }, invalid))
}

/// Whether valid JSON is nested deeper than [`CONTENT_DEPTH`].
fn is_too_deep(json: &[u8]) -> bool {
    let opens = |byte: &u8| matches!(byte, b'[' | b'{');
    if json.iter().filter(|byte| opens(byte)).count() <= CONTENT_DEPTH {
        return false;
    }
    let (mut depth, mut is_text, mut is_escaped) = (0_usize, false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => is_text = !is_text,
            b'[' | b'{' if !is_text => depth += 1,
            b']' | b'}' if !is_text => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > CONTENT_DEPTH {
            return true;
        }
    }
    false
}
