//! Profiles of endpoints: secrets, headers, and the client certificate.

use std::path::Path;
use std::sync::Arc;

use http::{HeaderMap, HeaderName};
use net::endpoint::{Endpoint, EndpointPrefix};
use net::setting::SettingText;
use net::tls::{self, Identity};
use rustls::ClientConfig;

use super::config::{EndpointSettings, Settings};
use super::headers::check_header;
use super::signature::WebhookSigner;
use crate::ChannelError;
use crate::checks::{both, each};

const PROTOCOLS: &[&[u8]] = &[b"http/1.1"];

/// The profiles of endpoints.
#[derive(Debug, Clone)]
pub(super) struct Endpoints {
    /// The profile of all remaining endpoints.
    usual: Profile,
    /// Profiles of some endpoints, those with the longest path first.
    special: Arc<[(EndpointPrefix, Profile)]>,
    /// The TLS configurations; a profile names one by its index.
    pub(super) tls: Vec<Arc<ClientConfig>>,
    /// Until when all of its certificates are good, in seconds of Unix time.
    pub(super) certificate_ends: Option<i64>,
}

/// How requests to an endpoint are signed and sent.
#[derive(Debug, Clone)]
pub(super) struct Profile {
    pub(super) signer: WebhookSigner,
    pub(super) headers: HeaderMap,
    /// The index of its TLS configuration.
    pub(super) tls: usize,
}

/// The checked form of one table of the settings.
struct EndpointTable {
    prefix: EndpointPrefix,
    /// `None` for the channel's own.
    signer: Option<WebhookSigner>,
    headers: HeaderMap,
    /// With a client certificate, and until when that is good.
    tls: Option<(Arc<ClientConfig>, Option<i64>)>,
}

// === impl Endpoints ===

impl Endpoints {
    /// Reads the certificates and keys that `settings` name.
    pub(super) fn new(settings: &Settings) -> Result<Self, ChannelError> {
        let ca_file = settings.ca_file.as_deref();
        let signer = WebhookSigner::new(&settings.secrets)
            .map_err(|message| ChannelError::setting("secrets", message));
        let own =
            each(settings.endpoints.iter().map(|endpoint| EndpointTable::read(endpoint, ca_file)));
        let (tls, (signer, own)) = both(tls::client(ca_file, PROTOCOLS, None), both(signer, own))?;
        let usual = Profile { signer, headers: HeaderMap::new(), tls: 0 };
        let mut tls = vec![tls];
        let (mut special, mut ends) = (Vec::new(), Vec::new());
        for EndpointTable { prefix, signer, headers, tls: own_tls } in own {
            // Connections are kept by origin and place: those on which a certificate was shown serve no other endpoint.
            let tls_place = if own_tls.is_some() { tls.len() } else { 0 };
            if let Some((own, certificate_ends)) = own_tls {
                tls.push(own);
                ends.extend(certificate_ends);
            }
            let signer = signer.unwrap_or_else(|| usual.signer.clone());
            special.push((prefix, Profile { signer, headers, tls: tls_place }));
        }
        special.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.path_bytes()));
        let certificate_ends = ends.into_iter().min();
        Ok(Self { usual, special: special.into(), tls, certificate_ends })
    }

    /// The profile of `endpoint`.
    pub(super) fn profile(&self, endpoint: &Endpoint) -> &Profile {
        let special = self.special.iter().find(|(prefix, _)| prefix.covers(endpoint));
        special.map_or(&self.usual, |(_, profile)| profile)
    }
}

// === impl EndpointTable ===

impl EndpointTable {
    /// Reads the certificate and key that `endpoint` names.
    fn read(endpoint: &EndpointSettings, ca_file: Option<&Path>) -> Result<Self, ChannelError> {
        let prefix = endpoint.url.parse::<EndpointPrefix>();
        let prefix = prefix.map_err(|malformed| refuse(endpoint, &format!("url {malformed}")));
        let signer = match &*endpoint.secrets {
            [] => Ok(None),
            secrets => WebhookSigner::new(secrets)
                .map(Some)
                .map_err(|message| refuse(endpoint, &format!("a secret {message}"))),
        };
        let tls = identity(endpoint).and_then(|identity| {
            let client = |identity: Identity<'_>| {
                let ends = identity.not_after();
                tls::client(ca_file, PROTOCOLS, Some(identity)).map(|client| (client, ends))
            };
            Ok(identity.map(client).transpose()?)
        });
        let ((prefix, signer), (tls, headers)) =
            both(both(prefix, signer), both(tls, headers(endpoint)))?;
        Ok(Self { prefix, signer, headers, tls })
    }
}

fn headers(endpoint: &EndpointSettings) -> Result<HeaderMap, ChannelError> {
    let checked = each(endpoint.headers.iter().map(|(name, value)| {
        check_header(name, value.expose())
            .map_err(|message| refuse(endpoint, &format!("the header {name:?} {message}")))
    }))?;
    let mut headers = HeaderMap::new();
    for (name, value) in checked {
        headers.insert::<HeaderName>(name, value);
    }
    Ok(headers)
}

fn identity(endpoint: &EndpointSettings) -> Result<Option<Identity<'_>>, ChannelError> {
    let EndpointSettings { certificate, certificate_file, key, key_file, .. } = endpoint;
    let is_set =
        [certificate.is_some(), certificate_file.is_some(), key.is_some(), key_file.is_some()];
    if is_set == [false; 4] {
        return Ok(None);
    }
    let certificate = SettingText::of("endpoints", certificate.as_ref(), certificate_file.as_ref());
    match (certificate, SettingText::of("endpoints", key.as_ref(), key_file.as_ref())) {
        (Some(certificate), Some(key)) => Ok(Some(Identity::read(certificate, key)?)),
        _ => Err(refuse(
            endpoint,
            "a certificate and its key belong together, each as a text or as a file",
        )),
    }
}

fn refuse(endpoint: &EndpointSettings, message: &str) -> ChannelError {
    ChannelError::setting("endpoints", format!("{}: {message}", endpoint.url))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(endpoints: &serde_json::Value) -> Settings {
        let settings = serde_json::json!({
            "secrets": ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
            "endpoints": endpoints,
        });
        serde_json::from_value(settings).unwrap()
    }

    #[test]
    fn the_longest_url_that_fits_counts() {
        let special = |url: &str| serde_json::json!({ "url": url, "headers": { "x-which": url } });
        let endpoints = Endpoints::new(&settings(&serde_json::json!([
            special("https://a.example"),
            special("https://a.example/hooks/"),
            special("https://a.example/hooks/new"),
            special("http://a.example"),
            special("https://a.example:8443/"),
        ])))
        .unwrap();
        let check = |url: &str, expect: &str| {
            let profile = endpoints.profile(&Endpoint::parse(url).unwrap());
            let which = profile.headers.get("x-which").map_or("", |value| value.to_str().unwrap());
            assert_eq!(which, expect, "{url}");
        };
        check("https://b.example/", "");
        check("https://a.example.b.example/", "");
        check("https://A.example", "https://a.example");
        check("https://a.example:443/x?y", "https://a.example");
        check("https://a.example/hooks", "https://a.example/hooks/");
        check("https://a.example/hooks?x=1", "https://a.example/hooks/");
        check("https://a.example/hooks/1", "https://a.example/hooks/");
        check("https://a.example/hooksnew", "https://a.example");
        check("https://a.example/hooks/new/1", "https://a.example/hooks/new");
        check("http://a.example/", "http://a.example");
        check("https://a.example:8443/x", "https://a.example:8443/");
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_url_and_without_its_secrets() {
        let check = |endpoint: serde_json::Value, expect: &str| {
            let error = Endpoints::new(&settings(&serde_json::json!([endpoint]))).unwrap_err();
            assert!(error.to_string().contains(expect), "{error}");
            assert!(!error.to_string().contains("canary"), "{error}");
        };
        let url = "https://a.example";
        check(serde_json::json!({ "url": "a.example" }), "endpoints: a.example: url must start");
        check(serde_json::json!({ "url": "https://a.example/?x" }), "must not have a query");
        check(
            serde_json::json!({ "url": url, "secrets": ["canary"] }),
            "endpoints: https://a.example: a secret must be whsec_ or whsk_",
        );
        check(
            serde_json::json!({ "url": url, "headers": { "host": "canary" } }),
            r#"the header "host" is set by Belfry itself"#,
        );
        check(
            serde_json::json!({ "url": url, "headers": { "x-a": "canary\n" } }),
            r#"the header "x-a" must have visible ASCII characters only"#,
        );
        check(serde_json::json!({ "url": url, "key_file": "x" }), "belong together");
        check(
            serde_json::json!({ "url": url, "key": "canary", "key_file": "x", "certificate": "canary" }),
            "belong together",
        );
        let broken = "-----BEGIN PRIVATE KEY-----canary-----END PRIVATE KEY-----";
        check(
            serde_json::json!({ "url": url, "key": broken, "certificate": broken }),
            "endpoints: cannot be read: -----BEGIN ...----- and",
        );
        check(
            serde_json::json!({ "url": url, "key_file": "/no", "certificate_file": "/nowhere.pem" }),
            "/nowhere.pem: cannot be read",
        );
    }
}
