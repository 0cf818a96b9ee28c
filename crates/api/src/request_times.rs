//! How long requests took, by route and class of status, and how many were refused, for the metrics.
//!
//! Routes are those of the table, by their templates, methods those that a route may have, and statuses classes: nothing that a caller
//! sends makes a series.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use axum::http::{Method, StatusCode};
use flow::Histogram;
use flow::histogram::doubling;
use pipeline::metrics::shown::{ShownHistogram, show_counters, show_histograms};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

/// Times of requests since the start of the process. Cloning gives another handle on the same ones.
#[derive(Debug, Clone, Default)]
pub struct RequestTimes(Arc<TimesByRoute>);

#[derive(Debug, Default)]
struct TimesByRoute {
    by_route: RwLock<BTreeMap<String, Arc<RouteTimes>>>,
    /// By status, from 400 on.
    refused: Refusals,
}

/// Times of one route, by method and class of status.
#[derive(Debug, Default)]
struct RouteTimes([[OnceLock<Histogram>; CLASSES.len()]; METHODS.len()]);

#[derive(Debug)]
struct Refusals([AtomicU64; 200]);

/// Methods with series of their own; the last is for all others.
const METHODS: [&str; 4] = ["GET", "POST", "DELETE", "other"];
/// Classes of status; the last is for requests that were given up before their answer began, since the caller was gone.
const CLASSES: [&str; 5] = ["2xx", "3xx", "4xx", "5xx", "none"];
/// The route that is not timed: a scraper times its scrapes itself, and one must not change what the next one shows.
const METRICS_ROUTE: &str = "/metrics";
/// Routes of which times are kept, at most: more than there are.
const ROUTES_MAX: usize = 128;
/// Route of requests for paths that there are not.
const NO_ROUTE: &str = "none";
/// Statuses whose series are there from the start, so that their first count is an increase: a caller is over its share (429), the
/// engine over its own (503), the disk is full (507).
const AT_ZERO: [u16; 3] = [429, 503, 507];
/// Upper bounds, microseconds: from half a millisecond to eight seconds.
static TIMES_US: [u64; 15] = doubling(500);

// === impl RequestTimes ===

impl RequestTimes {
    /// Counts a request by `method` for the template `route`, whose answer began with `status` after `took`.
    pub(crate) fn add(
        &self,
        (method, route): (&Method, Option<&str>),
        status: Option<StatusCode>,
        took: Duration,
    ) {
        if let Some(status) = status {
            self.0.refused.add(status);
        }
        if route == Some(METRICS_ROUTE) {
            return;
        }
        let times = self.of(route.unwrap_or(NO_ROUTE));
        let method = METHODS.iter().position(|known| *known == method.as_str());
        let method = method.unwrap_or(METHODS.len() - 1);
        let class = status.map_or(CLASSES.len() - 1, |status| match status.as_u16() {
            0..300 => 0,
            300..400 => 1,
            400..500 => 2,
            500.. => 3,
        });
        if let Some(times) = times.0.get(method).and_then(|classes| classes.get(class)) {
            let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
            times.get_or_init(|| Histogram::new(&TIMES_US)).observe(micros);
        }
    }

    fn of(&self, route: &str) -> Arc<RouteTimes> {
        // A panic leaves nothing half done: each change adds one entry.
        let known = self.0.by_route.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(times) = known.get(route) {
            return Arc::clone(times);
        }
        drop(known);
        let mut known = self.0.by_route.write().unwrap_or_else(PoisonError::into_inner);
        let route = if known.len() < ROUTES_MAX { route } else { NO_ROUTE };
        Arc::clone(known.entry(route.to_owned()).or_default())
    }
}

impl Collector for RequestTimes {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        let known = self.0.by_route.read().unwrap_or_else(PoisonError::into_inner).clone();
        let times = known.iter().flat_map(|(route, times)| {
            METHODS.iter().zip(&times.0).flat_map(move |(method, classes)| {
                CLASSES.iter().zip(classes).filter_map(move |(class, times)| {
                    let labels = [("route", route.as_str()), ("method", method), ("status", class)];
                    Some((labels, ShownHistogram::seconds(times.get()?.total())))
                })
            })
        });
        let name = "belfry_api_request_seconds";
        let help = "Seconds until the answer to a request began, by the template of its route and the class of its status";
        show_histograms(encoder, (name, help), times)?;
        let name = "belfry_api_requests_refused";
        let help = "Requests that were answered with a status from 400 on";
        show_counters(encoder, (name, help), self.0.refused.counts())
    }
}

// === impl Refusals ===

impl Refusals {
    fn add(&self, status: StatusCode) {
        let place = usize::from(status.as_u16()).checked_sub(400);
        if let Some(count) = place.and_then(|place| self.0.get(place)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The statuses that were answered, and how often; those of which operators are warned also before.
    fn counts(&self) -> impl Iterator<Item = ([(&'static str, u16); 1], u64)> + '_ {
        (400..).zip(&self.0).filter_map(|(status, count)| {
            let count = count.load(Ordering::Relaxed);
            (count > 0 || AT_ZERO.contains(&status)).then_some(([("status", status)], count))
        })
    }
}

impl Default for Refusals {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::default()))
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    fn lines(times: &RequestTimes) -> Vec<String> {
        let (mut registry, mut text) = (Registry::default(), String::new());
        registry.register_collector(Box::new(times.clone()));
        encode(&mut text, &registry).unwrap();
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }

    #[test]
    fn requests_are_counted_by_the_template_of_their_route_their_method_and_the_class_of_their_status()
     {
        let (times, took) = (RequestTimes::default(), Duration::from_millis(1));
        let route = Some("/v1/notifications/{id}");
        times.add((&Method::GET, route), Some(StatusCode::OK), took);
        times.add((&Method::GET, route), Some(StatusCode::NOT_FOUND), took);
        times.add((&Method::GET, route), Some(StatusCode::CONFLICT), took);
        times.add((&Method::POST, None), None, took);
        times.add((&Method::GET, Some(METRICS_ROUTE)), Some(StatusCode::OK), took);
        let lines = lines(&times);
        let of = |method: &str, status: &str| {
            format!("route=\"/v1/notifications/{{id}}\",method=\"{method}\",status=\"{status}\"")
        };
        for line in [
            format!("belfry_api_request_seconds_count{{{}}} 1", of("GET", "2xx")),
            format!("belfry_api_request_seconds_sum{{{}}} 0.002", of("GET", "4xx")),
            format!("belfry_api_request_seconds_bucket{{le=\"0.0005\",{}}} 0", of("GET", "2xx")),
            format!("belfry_api_request_seconds_bucket{{le=\"0.001\",{}}} 1", of("GET", "2xx")),
            "belfry_api_request_seconds_count{route=\"none\",method=\"POST\",status=\"none\"} 1"
                .to_owned(),
            "belfry_api_requests_refused_total{status=\"404\"} 1".to_owned(),
            "belfry_api_requests_refused_total{status=\"409\"} 1".to_owned(),
            "belfry_api_requests_refused_total{status=\"429\"} 0".to_owned(),
            "belfry_api_requests_refused_total{status=\"503\"} 0".to_owned(),
            "belfry_api_requests_refused_total{status=\"507\"} 0".to_owned(),
        ] {
            assert!(lines.contains(&line), "{line} {lines:#?}");
        }
        assert!(!lines.iter().any(|line| line.contains(METRICS_ROUTE)), "{lines:#?}");
    }

    #[test]
    fn a_hundred_times_the_routes_methods_and_statuses_make_no_more_series() {
        let times = RequestTimes::default();
        for number in 0..100 * ROUTES_MAX {
            let method = Method::from_bytes(format!("M{number}").as_bytes()).unwrap();
            let route = format!("/{number}");
            let status = u16::try_from(100 + number % 900).unwrap();
            let status = StatusCode::from_u16(status).unwrap();
            times.add((&method, Some(&route)), Some(status), Duration::ZERO);
        }
        let lines = lines(&times);
        let counted = |name: &str| lines.iter().filter(|line| line.starts_with(name)).count();
        let series = (ROUTES_MAX + 1) * METHODS.len() * CLASSES.len();
        assert!(counted("belfry_api_request_seconds_count") <= series);
        assert_eq!(counted("belfry_api_requests_refused_total"), 200);
    }
}
