//! What is sent: a content as it was given, or what a template makes of it, and what stands in for it.

use std::borrow::Cow;
use std::sync::Arc;

use channel::Channel;
use notification::limits::{
    CONTENT_DEPTH, FALLBACK_BYTES, FALLBACKS, OPTIONS_BYTES, PAYLOAD_BYTES,
};
use notification::{Alternative, ByteString, Bytes, Content, Fallback, Name};

use super::check::{Catalog, FallbackTerms, Fault, Recipient, Terms, channel, recipient};
use super::template::{Template, Variables};

/// What is to be sent.
#[derive(Debug)]
pub(super) enum What {
    Plain(Content),
    Template(Arc<Template>),
}

/// What each recipient of a broadcast is sent.
#[derive(Debug)]
pub(super) struct Recipe {
    channel: Arc<dyn Channel>,
    what: What,
    /// Those of everybody.
    variables: Variables,
    ways: Vec<Way>,
}

/// What stands in for a notification of a broadcast; each recipient says where.
#[derive(Debug)]
struct Way {
    name: Name,
    channel: Arc<dyn Channel>,
    what: What,
    /// Whether its channel takes it, which need be asked once of what is the same for all.
    is_checked: bool,
}

/// What one recipient of a broadcast is sent, if that differs from what all are.
#[derive(Debug, Default)]
pub(super) struct Own {
    pub(super) content: Option<Content>,
    /// Of what it shares with nobody.
    pub(super) bytes: usize,
}

/// Checks what stands in for a notification as if each were sent by itself.
pub(super) fn fallback(
    catalog: &Catalog,
    terms: &Terms<'_>,
    variables: &Variables,
) -> Result<Option<Arc<Fallback>>, Fault> {
    if terms.fallback.is_empty() {
        return Ok(None);
    }
    let ways = ways(catalog, terms)?;
    let addresses = terms.fallback.iter().map(|item| Some(item.to.clone()));
    let next = alternatives(&ways, addresses, variables)?;
    Ok(Some(Arc::new(Fallback { of: None, next })))
}

/// What is to stand in for a notification, in order.
fn ways(catalog: &Catalog, terms: &Terms<'_>) -> Result<Vec<Way>, Fault> {
    if terms.fallback.len() > FALLBACKS {
        let message = format!("must have at most {FALLBACKS} items, has {}", terms.fallback.len());
        return Err(Fault::new("/fallback", message));
    }
    let way = |item: &FallbackTerms<'_>| {
        let (name, channel) = channel(&catalog.channels, &item.channel)?;
        let terms = Terms {
            content: item.content.clone(),
            options: item.options.clone(),
            template: item.template.clone(),
            variables: terms.variables.clone(),
            ..Terms::default()
        };
        let what = What::new(catalog, (name, &**channel), &terms)?;
        Ok(Way { name: name.clone(), channel: Arc::clone(channel), what, is_checked: false })
    };
    let ways = terms.fallback.iter().enumerate().map(|(index, item)| {
        way(item).map_err(|fault: Fault| fault.within(&format!("/fallback/{index}")))
    });
    ways.collect()
}

/// Those of `ways` that have an address, as if each were sent by itself.
fn alternatives(
    ways: &[Way],
    addresses: impl Iterator<Item = Option<ByteString>>,
    variables: &Variables,
) -> Result<Vec<Alternative>, Fault> {
    let mut next = Vec::with_capacity(ways.len());
    for (index, (way, to)) in ways.iter().zip(addresses).enumerate() {
        let Some(to) = to else { continue };
        let alternative = way.alternative(to, variables);
        next.push(alternative.map_err(|fault| fault.within(&format!("/fallback/{index}")))?);
    }
    let bytes: usize = next.iter().map(Alternative::bytes).sum();
    if bytes > FALLBACK_BYTES {
        let message = format!("must have at most {FALLBACK_BYTES} bytes together, has {bytes}");
        return Err(Fault::new("/fallback", message));
    }
    Ok(next)
}

// === impl Recipe ===

impl Recipe {
    /// Checks what can be checked before there are recipients.
    pub(super) fn new(
        catalog: &Catalog,
        (channel, what): (Arc<dyn Channel>, What),
        terms: &Terms<'_>,
    ) -> Result<Self, Fault> {
        let (variables, ways) = (Variables::of(terms)?, ways(catalog, terms)?);
        let mut recipe = Self { channel, what, variables, ways };
        if recipe.what.is_constant() {
            check_content(&*recipe.channel, &recipe.what.source())?;
        }
        for (index, way) in recipe.ways.iter_mut().enumerate() {
            if way.what.is_constant() {
                let checked = check_content(&*way.channel, &way.what.source());
                checked.map_err(|fault| fault.within(&format!("/fallback/{index}")))?;
                way.is_checked = true;
            }
        }
        Ok(recipe)
    }

    pub(super) fn channel(&self) -> &dyn Channel {
        &*self.channel
    }

    /// What everybody is sent who is sent nothing of its own.
    pub(super) fn source(&self) -> Content {
        self.what.source()
    }

    /// Whether anything differs from one recipient to the other.
    pub(super) fn renders(&self) -> bool {
        let mut all = self.ways.iter().map(|way| &way.what).chain([&self.what]);
        all.any(|what| !what.is_constant())
    }

    /// What the recipient with these `variables` is sent, and at these addresses instead. Faults are its own.
    pub(super) fn own(
        &self,
        variables: Option<Bytes>,
        addresses: Vec<Option<ByteString>>,
    ) -> Result<Own, Fault> {
        self.check_own(variables.is_some(), addresses.len())?;
        let variables = match variables {
            Some(json) => Cow::Owned(Variables::read(&json)?.over(&self.variables)),
            None => Cow::Borrowed(&self.variables),
        };
        if self.what.is_constant() && self.ways.is_empty() {
            return Ok(Own::default());
        }
        self.content(&variables, addresses).map_err(|fault| match &*fault.pointer {
            pointer if pointer.starts_with("/content") || pointer.starts_with("/options") => {
                Fault::new("/variables", format!("with these, {fault}"))
            }
            _ => fault,
        })
    }

    fn content(
        &self,
        variables: &Variables,
        addresses: Vec<Option<ByteString>>,
    ) -> Result<Own, Fault> {
        let mut content = self.what.render(variables)?;
        let mut bytes = 0;
        if !self.what.is_constant() {
            check_content(&*self.channel, &content)?;
            bytes += content.bytes();
        }
        let next = alternatives(&self.ways, addresses.into_iter(), variables)?;
        // What is the same for all is stored with many of them.
        let is_shared = self.ways.iter().all(|way| way.what.is_constant());
        let of = if is_shared { Alternative::address_bytes } else { Alternative::bytes };
        bytes += next.iter().map(of).sum::<usize>();
        if !next.is_empty() {
            content.fallback = Some(Arc::new(Fallback { of: None, next }));
        }
        Ok(Own { content: Some(content), bytes })
    }

    fn check_own(&self, has_variables: bool, addresses: usize) -> Result<(), Fault> {
        let mut all = self.ways.iter().map(|way| &way.what).chain([&self.what]);
        if has_variables && !all.any(|what| matches!(what, What::Template(_))) {
            let message = "the broadcast's content is no template: give the broadcast `variables`, `{}` will do";
            return Err(Fault::new("/variables", message));
        }
        if addresses > self.ways.len() {
            let message = match self.ways.len() {
                0 => "the broadcast has no `fallback`: say there what is sent, and here to whom"
                    .to_owned(),
                ways => format!(
                    "must have at most {ways} addresses, as the broadcast's `fallback` has items"
                ),
            };
            return Err(Fault::new("/fallback", message));
        }
        Ok(())
    }
}

// === impl Way ===

impl Way {
    fn alternative(&self, to: ByteString, variables: &Variables) -> Result<Alternative, Fault> {
        let content = self.what.render(variables)?;
        if !self.is_checked {
            check_content(&*self.channel, &content)?;
        }
        let Recipient { to, destination } = recipient(&*self.channel, to)?;
        let Content { payload, options, fallback: _ } = content;
        Ok(Alternative { channel: self.name.clone(), destination, recipient: to, payload, options })
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
        Ok(match (&terms.template, &terms.variables) {
            (None, None) => Self::Plain(content()),
            (None, Some(_)) => {
                Self::Template(Arc::new(Template::compile(&content(), channel.html_fields())?))
            }
            (Some(_), _) if !terms.options.is_empty() => {
                return Err(Fault::new("/options", "are part of the template: leave them out"));
            }
            (Some(template), _) => Self::Template(catalog.templates.get(template, name)?),
        })
    }

    pub(super) fn render(&self, variables: &Variables) -> Result<Content, Fault> {
        match self {
            Self::Plain(content) => Ok(content.clone()),
            Self::Template(template) => template.render(variables),
        }
    }

    /// Whether everybody is sent the same.
    fn is_constant(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Template(template) => template.is_constant(),
        }
    }

    /// The content as it was written.
    fn source(&self) -> Content {
        match self {
            Self::Plain(content) => content.clone(),
            Self::Template(template) => template.source(),
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
