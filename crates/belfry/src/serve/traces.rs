//! Traces to a receiver of OTLP over HTTP. The SDK of OpenTelemetry collects the spans and sends them in batches, on a thread of its own.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Context as _;
use async_trait::async_trait;
use bytes::Bytes;
use flow::Clock;
use http_body_util::Full;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, Response, StatusCode};
use net::endpoint::Endpoint;
use net::http1;
use net::tcp::Anywhere;
use opentelemetry::trace as otel;
use opentelemetry::{InstrumentationScope, KeyValue, Value};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{RetryPolicy, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::resource::EnvResourceDetector;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SpanData, SpanEvents, SpanExporter, SpanLinks,
    SpanProcessor as _,
};
use pipeline::spans::{SpanKind, SpanSink, SpanValue, TraceSpan};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use rustls::ClientConfig;
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::config::TracesConfig;

/// Spans that wait to be sent, at most: some megabytes. More are dropped, and counted.
const SPANS_MAX: usize = 8_192;
/// Spans of one request.
const BATCH_MAX: usize = 512;
/// How long a span waits for others of its request: the default of the specification of OpenTelemetry (`OTEL_BSP_SCHEDULE_DELAY`).
const BATCH_WAIT: Duration = Duration::from_secs(5);
/// How long the receiver may take to answer, with the time to connect.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the end of the process waits until what is left is sent.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between two lines of the log about a receiver that takes nothing.
const WARNING_SPAN: Duration = Duration::from_mins(1);

/// Takes spans for the receiver of the configuration.
#[derive(Debug)]
struct OtlpSink {
    processor: BatchSpanProcessor,
    scope: InstrumentationScope,
    fates: SpanFates,
}

/// Counts of the spans of this process by what became of them. Cloning gives another handle on the same counts.
#[derive(Debug, Clone)]
struct SpanFates {
    counts: Family<[(&'static str, &'static str); 1], Counter>,
    waiting: Arc<AtomicUsize>,
}

/// Sends spans, and counts what becomes of them.
#[derive(Debug)]
struct CountedExporter {
    inner: opentelemetry_otlp::SpanExporter,
    fates: SpanFates,
    clock: Clock,
    /// When the next failure has a line in the log, milliseconds on the clock that suspended time counts on.
    warns_at: AtomicU64,
    fault: LastFault,
}

/// Sends the requests of the exporter over the connections of this program.
struct ReceiverClient {
    endpoint: Endpoint,
    tls: Option<Arc<ClientConfig>>,
    /// Of the configuration. The exporter would add some of the environment, which may be meant for another receiver.
    headers: HeaderMap,
    runtime: Handle,
    fault: LastFault,
}

/// Words for why the last request had no answer, which the exporter does not hand on.
type LastFault = Arc<Mutex<String>>;

/// Opens the way to the receiver of `config`, whose spans are those of the process `instance`; `None` if nothing is traced. Must be called
/// on the runtime of the engine. Connects to nothing yet.
///
/// # Errors
/// When a file cannot be used.
pub(super) fn open(
    config: &TracesConfig,
    instance: String,
    registry: &mut Registry,
    clock: Clock,
) -> anyhow::Result<Option<Arc<dyn SpanSink>>> {
    let Some(url) = &config.url else { return Ok(None) };
    let endpoint = Endpoint::parse(url).context("traces.url")?;
    let tls = endpoint.origin.is_https.then(|| trust(config.ca_file.as_deref())).transpose()?;
    let (headers, fault) = (headers(config)?, LastFault::default());
    let runtime = Handle::current();
    let client = ReceiverClient { endpoint, tls, headers, runtime, fault: Arc::clone(&fault) };
    let inner = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_http_client(client)
        .with_endpoint(url)
        .with_timeout(ANSWER_TIMEOUT)
        // The next batch is a better try than this one again: while it waited, spans behind it would be dropped.
        .with_retry_policy(RetryPolicy::disabled())
        .build()
        .context("traces")?;
    let fates = SpanFates::new(registry);
    let exporter =
        CountedExporter { inner, fates: fates.clone(), clock, warns_at: AtomicU64::new(0), fault };
    let batches = BatchConfigBuilder::default()
        .with_max_queue_size(SPANS_MAX)
        .with_max_export_batch_size(BATCH_MAX)
        .with_scheduled_delay(BATCH_WAIT)
        .build();
    let mut processor = BatchSpanProcessor::new(exporter, batches);
    processor.set_resource(&resource(instance));
    let scope = InstrumentationScope::builder("belfry").with_version(env!("CARGO_PKG_VERSION"));
    Ok(Some(Arc::new(OtlpSink { processor, scope: scope.build(), fates })))
}

fn headers(config: &TracesConfig) -> anyhow::Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in &config.headers {
        let mut value = HeaderValue::try_from(value.expose())?;
        // `Debug` hides it then.
        value.set_sensitive(true);
        headers.insert(HeaderName::try_from(name)?, value);
    }
    Ok(headers)
}

fn trust(ca_file: Option<&Path>) -> anyhow::Result<Arc<ClientConfig>> {
    net::tls::client(ca_file, &[], None).map_err(|error| anyhow::anyhow!("traces.{error}"))
}

/// The resource that all spans of this process name; the environment may say otherwise (`OTEL_RESOURCE_ATTRIBUTES`).
fn resource(instance: String) -> Resource {
    Resource::builder_empty()
        .with_attributes([
            KeyValue::new("service.name", "belfry"),
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("service.instance.id", instance),
        ])
        .with_detector(Box::new(EnvResourceDetector::new()))
        .build()
}

// === impl SpanFates ===

impl SpanFates {
    fn new(registry: &mut Registry) -> Self {
        let counts = Family::default();
        for fate in ["sent", "failed", "dropped"] {
            let _at_zero = counts.get_or_create(&[("fate", fate)]);
        }
        let help = "Spans of traces, by what became of them";
        registry.register("belfry_spans", help, counts.clone());
        Self { counts, waiting: Arc::default() }
    }

    fn add(&self, fate: &'static str, count: usize) {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.counts.get_or_create(&[("fate", fate)]).inc_by(count);
    }
}

// === impl OtlpSink ===

impl SpanSink for OtlpSink {
    fn record(&self, span: TraceSpan) {
        // Counted here, since the processor has as much room and does not say what it drops.
        let has_room = |waiting: usize| (waiting < SPANS_MAX).then(|| waiting.saturating_add(1));
        let waiting = &self.fates.waiting;
        if waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, has_room).is_err() {
            self.fates.add("dropped", 1);
            return;
        }
        self.processor.on_end(span_data(span, &self.scope));
    }

    fn close(&self) {
        if let Err(error) = self.processor.shutdown_with_timeout(CLOSE_TIMEOUT) {
            tracing::warn!(%error, "the last spans of traces were not sent");
        }
    }
}

/// A span as the SDK has it.
fn span_data(span: TraceSpan, scope: &InstrumentationScope) -> SpanData {
    let TraceSpan { context, parent, kind, name, began_at, ended_at, attributes, error } = span;
    let mut attributes: Vec<KeyValue> = attributes
        .into_iter()
        .map(|(key, value)| match value {
            SpanValue::Text(text) => KeyValue::new(key, Value::from(text.into_owned())),
            SpanValue::Number(number) => KeyValue::new(key, Value::from(number)),
        })
        .collect();
    let status = match error {
        Some(code) => {
            attributes.push(KeyValue::new("error.type", code.into_owned()));
            otel::Status::error("")
        }
        None => otel::Status::Unset,
    };
    SpanData {
        span_context: otel::SpanContext::new(
            otel::TraceId::from_bytes(context.trace.bytes()),
            otel::SpanId::from_bytes(context.span.bytes()),
            otel::TraceFlags::SAMPLED,
            false,
            otel::TraceState::NONE,
        ),
        parent_span_id: parent
            .map_or(otel::SpanId::INVALID, |parent| otel::SpanId::from_bytes(parent.bytes())),
        parent_span_is_remote: parent.is_some(),
        span_kind: match kind {
            SpanKind::Server => otel::SpanKind::Server,
            SpanKind::Client => otel::SpanKind::Client,
        },
        name,
        start_time: UNIX_EPOCH + began_at,
        end_time: UNIX_EPOCH + ended_at,
        attributes,
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status,
        instrumentation_scope: scope.clone(),
    }
}

// === impl CountedExporter ===

impl SpanExporter for CountedExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len();
        self.fates.waiting.fetch_sub(count, Ordering::Relaxed);
        let exported = self.inner.export(batch).await;
        match &exported {
            Ok(()) => self.fates.add("sent", count),
            Err(error) => {
                // In front of the count, which then has its line in the log.
                self.warn(error);
                self.fates.add("failed", count);
            }
        }
        exported
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

impl CountedExporter {
    /// Says that spans were lost, now and then: nothing but traces suffers.
    fn warn(&self, error: &dyn fmt::Display) {
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let now = self.clock.boot();
        if millis(now) < self.warns_at.load(Ordering::Relaxed) {
            return;
        }
        // One export is under way at a time.
        self.warns_at.store(millis(now + WARNING_SPAN), Ordering::Relaxed);
        let fault = std::mem::take(&mut *self.fault.lock().unwrap_or_else(PoisonError::into_inner));
        let fault = (!fault.is_empty()).then_some(fault.as_str());
        tracing::warn!(%error, fault, "spans of traces are lost: the receiver does not take them");
    }
}

// === impl ReceiverClient ===

impl fmt::Debug for ReceiverClient {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("ReceiverClient").field(&self.endpoint.origin).finish()
    }
}

#[async_trait]
impl HttpClient for ReceiverClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (origin, tls) = (self.endpoint.origin.clone(), self.tls.clone());
        let host = HeaderValue::try_from(origin.authority())?;
        let (parts, body) = request.into_parts();
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = parts.method;
        *request.uri_mut() = self.endpoint.path.clone().into();
        let headers = request.headers_mut();
        headers.clone_from(&self.headers);
        headers.insert(HOST, host);
        let kinds = [CONTENT_TYPE, CONTENT_ENCODING];
        headers.extend(kinds.into_iter().filter_map(|kind| {
            let value = parts.headers.get(&kind)?.clone();
            Some((kind, value))
        }));
        // The thread of the SDK is none of the runtime, on which connections have to be.
        let asking = self.runtime.spawn(async move {
            let asking = http1::exchange_once(&origin, tls.as_ref(), &Anywhere, request);
            timeout(ANSWER_TIMEOUT, asking).await
        });
        let late = |_| format!("no answer within {} s", ANSWER_TIMEOUT.as_secs());
        let reply = asking.await?.map_err(late).flatten();
        let reply = reply.inspect_err(|words| {
            self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone_from(words);
        })?;
        let mut response = Response::new(Bytes::from(reply.body));
        *response.status_mut() = StatusCode::from_u16(reply.status)?;
        *response.headers_mut() = reply.headers;
        Ok(response)
    }
}
