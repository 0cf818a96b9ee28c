//! The kinds of channels: one row and one implementation of [`ChannelSettings`] each.

use std::path::PathBuf;
use std::sync::Arc;

use channel::{Channel, ChannelError, apns, dry_run, fcm, smtp, stream, webhook, webpush};
use toml::{Table, Value};

use super::places::StorePlace;
use super::problem::Mistake;
use super::stream_systems;
use super::table::read_table;

/// The settings of one kind of channel.
pub(super) trait ChannelSettings {
    /// Builds the channel. Reads the files that it names, and connects to nothing.
    fn build(&self, shared: &ChannelResources) -> Result<Arc<dyn Channel>, ChannelError>;

    /// Attempts before a notification is given up, unless the configuration says otherwise.
    fn attempts(&self) -> u16 {
        32
    }

    /// A setting that is allowed and makes some contents fail, and why.
    fn warning(&self) -> Option<&'static str> {
        None
    }

    /// True if its token for Apple is made anew with every start.
    fn forgets_its_token(&self, _shared: &ChannelResources) -> bool {
        false
    }
}

/// Makes [`ChannelKind`] and what reads it from one row for each kind.
macro_rules! kinds {
    ($($name:literal => $kind:ident($settings:ty),)+) => {
        /// The protocol and its settings.
        #[derive(Debug, Clone, PartialEq)]
        pub(crate) enum ChannelKind {
            $(#[doc = concat!("`", $name, "`")] $kind(Box<$settings>),)+
        }

        /// The values of the setting `kind`.
        const NAMES: &[&str] = &[$($name),+];

        impl ChannelKind {
            /// As the setting `kind` has it.
            pub(crate) fn name(&self) -> &'static str {
                match self {
                    $(Self::$kind(_) => $name,)+
                }
            }

            /// The settings, to build a channel from.
            pub(super) fn settings(&self) -> &dyn ChannelSettings {
                match self {
                    $(Self::$kind(settings) => &**settings,)+
                }
            }

            /// Reads `table`, which stands at `path`, as its `kind` says. An internally tagged enum would do the same, and
            /// forget which key was wrong.
            pub(super) fn read(
                kind: Option<&Value>,
                table: Table,
                path: &str,
                problems: &mut Vec<Mistake>,
            ) -> Option<Self> {
                let message = match kind.and_then(Value::as_str) {
                    $(Some($name) => return read_table(table, path, problems).map(Self::$kind),)+
                    Some(name) => format!("{name:?} is not {}", names()),
                    None => format!("missing: {}", names()),
                };
                problems.push(Mistake::new(format!("{path}.kind"), message));
                None
            }
        }
    };
}

kinds! {
    "apns" => Apns(apns::Settings),
    "fcm" => Fcm(fcm::Settings),
    "webhook" => Webhook(webhook::Settings),
    "webpush" => WebPush(webpush::Settings),
    "smtp" => Smtp(smtp::Settings),
    "stream" => Stream(stream::Settings),
    "dry-run" => DryRun(dry_run::Settings),
}

/// The state that all channels of a process share, also those that replace former ones.
#[derive(Debug, Default)]
pub(crate) struct ChannelResources {
    /// The tokens for Apple.
    pub(crate) apns_tokens: apns::ProviderTokens,
    /// Where channels keep what must outlive a restart, unless they say where.
    pub(crate) state_directory: Option<PathBuf>,
}

// === impl ChannelResources ===

impl ChannelResources {
    /// For the channels of a process that was started with a store at `place`. `service_directory` is where the service
    /// manager wants state to be kept, if one does.
    pub(crate) fn new(place: StorePlace<'_>, service_directory: Option<PathBuf>) -> Self {
        let directory = match place {
            StorePlace::Directory(directory) => Some(directory.to_owned()),
            // A database has no directory that is this process's own.
            StorePlace::Server(_) => service_directory,
        };
        let state_directory = directory.map(|directory| directory.join("state"));
        Self { state_directory, ..Self::default() }
    }
}

// === impl ChannelSettings ===

impl ChannelSettings for apns::Settings {
    fn build(&self, shared: &ChannelResources) -> Result<Arc<dyn Channel>, ChannelError> {
        let mut settings = self.clone();
        settings.state_directory =
            settings.state_directory.or_else(|| shared.state_directory.clone());
        Ok(Arc::new(apns::ApnsChannel::new(&settings, &shared.apns_tokens)?))
    }

    fn forgets_its_token(&self, shared: &ChannelResources) -> bool {
        let directory = self.state_directory.as_ref().or(shared.state_directory.as_ref());
        // With a certificate there is no token.
        let has_token = self.certificate_file.is_none() && self.certificate.is_none();
        has_token && directory.is_none()
    }
}

impl ChannelSettings for fcm::Settings {
    fn build(&self, _shared: &ChannelResources) -> Result<Arc<dyn Channel>, ChannelError> {
        Ok(Arc::new(fcm::FcmChannel::new(self)?))
    }
}

impl ChannelSettings for webhook::Settings {
    fn build(&self, _shared: &ChannelResources) -> Result<Arc<dyn Channel>, ChannelError> {
        Ok(Arc::new(webhook::WebhookChannel::new(self)?))
    }
}

impl ChannelSettings for webpush::Settings {
    fn build(&self, _shared: &ChannelResources) -> Result<Arc<dyn Channel>, ChannelError> {
        Ok(Arc::new(webpush::WebPushChannel::new(self)?))
    }
}

impl ChannelSettings for smtp::Settings {
    fn build(&self, _shared: &ChannelResources) -> Result<Arc<dyn Channel>, ChannelError> {
        Ok(Arc::new(smtp::SmtpChannel::new(self)?))
    }

    fn attempts(&self) -> u16 {
        // Mail that is put off is tried every 30 min by default: that makes five days (RFC 5321, section 4.5.4.1).
        240
    }

    fn warning(&self) -> Option<&'static str> {
        let message = "from: is not set: mail whose content has no `from` of its own is refused";
        self.from.is_none().then_some(message)
    }
}

impl ChannelSettings for stream::Settings {
    fn build(&self, _shared: &ChannelResources) -> Result<Arc<dyn Channel>, ChannelError> {
        Ok(Arc::new(stream::StreamChannel::new(self, stream_systems::of(self)?)?))
    }
}

impl ChannelSettings for dry_run::Settings {
    fn build(&self, _shared: &ChannelResources) -> Result<Arc<dyn Channel>, ChannelError> {
        Ok(Arc::new(dry_run::DryRunChannel::new(self.clone())?))
    }
}

// === helpers ===

/// All kinds, for people: "`a`, `b` or `c`".
fn names() -> String {
    let names: Vec<String> = NAMES.iter().map(|name| format!("`{name}`")).collect();
    let list = names.join(", ");
    list.rsplit_once(", ").map_or(list.clone(), |(others, last)| format!("{others} or {last}"))
}
