//! Shares of tenants, as answers tell of an exhausted one: by the fields of draft-ietf-httpapi-ratelimit-headers-10, each as a policy with
//! a name of its own.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use notification::limits::{INGEST_TENANT_BYTES, TENANT_READS};
use pipeline::ingest::IngestShare;
use pipeline::ingest::limits::RENDER_WAITING_OF_TENANT;

use crate::limits::{TENANT_EVENT_STREAMS, TENANT_STREAMS, TENANT_WATCHES};

/// Something of which each tenant has a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TenantShare {
    /// Bytes that are taken in.
    IngestBytes,
    /// Pieces of rendering that wait.
    Rendering,
    /// Questions to the store that are answered or wait.
    Reads,
    /// Requests of tools that watch the engine.
    Watches,
    /// Connections of a listener, so many.
    Connections(usize),
    /// Requests over HTTP/2 at a listener.
    Requests,
    /// Streams of events.
    EventStreams,
}

pub(crate) const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub(crate) const LEFT: HeaderName = HeaderName::from_static("ratelimit");

// === impl TenantShare ===

impl TenantShare {
    /// The name of its policy. Clients compare it: it is never changed.
    const fn name(self) -> &'static str {
        match self {
            Self::IngestBytes => "ingest-bytes",
            Self::Rendering => "rendering",
            Self::Reads => "reads",
            Self::Watches => "watches",
            Self::Connections(_) => "connections",
            Self::Requests => "requests",
            Self::EventStreams => "event-streams",
        }
    }

    /// The share of one tenant.
    const fn quota(self) -> usize {
        match self {
            Self::IngestBytes => INGEST_TENANT_BYTES,
            Self::Rendering => RENDER_WAITING_OF_TENANT,
            Self::Reads => TENANT_READS,
            Self::Watches => TENANT_WATCHES,
            Self::Connections(each_max) => each_max,
            Self::Requests => TENANT_STREAMS,
            Self::EventStreams => TENANT_EVENT_STREAMS,
        }
    }

    /// The unit of the quota, a word of the draft (its section on quota units).
    const fn unit(self) -> &'static str {
        match self {
            Self::IngestBytes => "content-bytes",
            Self::Rendering
            | Self::Reads
            | Self::Watches
            | Self::Connections(_)
            | Self::Requests
            | Self::EventStreams => "concurrent-requests",
        }
    }

    /// Tells in the head of an answer that it is exhausted, and after how many seconds there may be room. A rate of the key that is told of
    /// as well stays.
    pub(crate) fn write(self, headers: &mut HeaderMap, retry_after: Option<u64>) {
        let (name, unit) = (self.name(), self.unit());
        let policy = format!("\"{name}\";q={};qu=\"{unit}\"", self.quota());
        let left = match retry_after {
            Some(seconds) => format!("\"{name}\";r=0;t={seconds}"),
            None => format!("\"{name}\";r=0"),
        };
        for (field, value) in [(POLICY, policy), (LEFT, left)] {
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.append(field, value);
            }
        }
    }
}

impl From<IngestShare> for TenantShare {
    fn from(share: IngestShare) -> Self {
        match share {
            IngestShare::Bytes => Self::IngestBytes,
            IngestShare::Rendering => Self::Rendering,
        }
    }
}
