//! The metrics of credentials that end, by channel.

use std::fmt;

use flow::Clock;
use pipeline::Channels;
use pipeline::metrics::shown::show_gauges;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use tokio::sync::watch;

/// When the credentials of the channels end, as it is at a scrape.
#[derive(Debug)]
pub(super) struct CredentialMetrics {
    pub(super) channels: watch::Receiver<Channels>,
    pub(super) clock: Clock,
}

// === impl CredentialMetrics ===

impl Collector for CredentialMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let channels = self.channels.borrow().clone();
        let ends = channels.iter().flat_map(|(name, channel)| {
            let ends = channel.credentials(self.clock).into_iter();
            ends.map(move |ends| {
                ([("channel", name.as_str()), ("what", ends.what)], ends.expires_at)
            })
        });
        let name = "belfry_credential_expiry_timestamp_seconds";
        let help = "Unix time at which a credential of a channel ends";
        show_gauges(&mut encoder, (name, help), ends)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use channel::webhook::{Settings, WebhookChannel};
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn of_the_certificates_of_a_channel_the_end_of_the_first_is_told() {
        let endpoints = [2099, 2050].map(|year| {
            let mut parameters = rcgen::CertificateParams::new(["client".to_owned()]).unwrap();
            parameters.not_after = rcgen::date_time_ymd(year, 1, 1);
            let key = rcgen::KeyPair::generate().unwrap();
            let certificate = parameters.self_signed(&key).unwrap().pem();
            let url = format!("https://example.com/{year}/");
            serde_json::json!({ "url": url, "certificate": certificate, "key": key.serialize_pem() })
        });
        let secret = "whsec_YmVsZnJ5IGRlbW86IG5vdCBhIHJlYWwgc2VjcmV0ISE=";
        let settings = serde_json::json!({ "secrets": [secret], "endpoints": endpoints });
        let settings: Settings = serde_json::from_value(settings).unwrap();
        let mut channels = Channels::default();
        let channel = WebhookChannel::new(&settings).unwrap();
        channels.insert("hooks".parse().unwrap(), Arc::new(channel));
        let (_sender, channels) = watch::channel(channels);
        let mut registry = Registry::default();
        let metrics = CredentialMetrics { channels, clock: Clock::system() };
        registry.register_collector(Box::new(metrics));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        // The first of January 2050.
        let line = "belfry_credential_expiry_timestamp_seconds{channel=\"hooks\",what=\"client_certificate\"} 2524608000\n";
        assert!(text.contains(line), "{text}");
    }
}
