//! The metrics of the process itself: which build it is, since when it runs, and what came of the last reload.

use std::sync::atomic::AtomicU64;

use flow::Clock;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::Role;
use super::backend::Backend;
use super::credential_metrics::CredentialMetrics;
use super::live::Live;
use super::store_metrics::StoreMetrics;

/// Reloads of the configuration since the start.
#[derive(Debug)]
pub(super) struct ReloadMetrics {
    /// Unix time of the start, seconds.
    started_at: Gauge<f64, AtomicU64>,
    /// 1 unless the last one was refused.
    is_successful: Gauge,
    /// Unix time, seconds: of the start, or of the last reload that was not refused.
    succeeded_at: Gauge<f64, AtomicU64>,
    reloads: Family<[(&'static str, &'static str); 1], Counter>,
    clock: Clock,
}

/// A registry with the metrics of the process itself, of the store and of the credentials. `clock` is that of all processes which
/// share the store, and `reloads` were made at the start.
pub(super) fn registry(
    role: Role,
    (live, backend): (&Live, &Backend),
    reloads: &ReloadMetrics,
    clock: Clock,
) -> Registry {
    let mut registry = Registry::default();
    let labels = [("version", env!("CARGO_PKG_VERSION")), ("role", role.name())];
    let build = Family::<[(&str, &str); 2], Gauge>::default();
    build.get_or_create(&labels).set(1);
    registry.register("belfry_build_info", "Version and role of the process; always 1", build);
    reloads.register(&mut registry);
    registry.register_collector(Box::new(StoreMetrics {
        commits: backend.commits(),
        has_log: backend.shared().is_none(),
        clocks: (reloads.clock, clock),
    }));
    let channels = live.channels();
    registry.register_collector(Box::new(CredentialMetrics { channels, clock: reloads.clock }));
    registry
}

// === impl ReloadMetrics ===

impl ReloadMetrics {
    /// Those of a process that starts now, by the wall time of `clock`: what it started with counts as read with success.
    pub(super) fn new(clock: Clock) -> Self {
        let is_successful = Gauge::default();
        is_successful.set(1);
        let reloads = Family::default();
        for result in ["done", "refused"] {
            let _at_zero = reloads.get_or_create(&[("result", result)]);
        }
        let [started_at, succeeded_at] = [unix_time(clock), unix_time(clock)];
        Self { started_at, is_successful, succeeded_at, reloads, clock }
    }

    fn register(&self, registry: &mut Registry) {
        let help = "Unix time at which the process started";
        let started_at = self.started_at.clone();
        registry.register("belfry_process_start_time_seconds", help, started_at);
        registry.register(
            "belfry_config_last_reload_successful",
            "Whether the last reload of the configuration was not refused, 0 or 1",
            self.is_successful.clone(),
        );
        registry.register(
            "belfry_config_last_reload_success_timestamp_seconds",
            "Unix time since which the configuration in force is, as it was read last",
            self.succeeded_at.clone(),
        );
        let help = "Reloads of the configuration, done and refused";
        registry.register("belfry_config_reloads", help, self.reloads.clone());
    }

    /// Notes the end of a reload.
    pub(super) fn ended(&self, is_successful: bool) {
        self.is_successful.set(is_successful.into());
        if is_successful {
            self.succeeded_at.set(self.clock.wall().as_secs_f64());
        }
        let result = if is_successful { "done" } else { "refused" };
        self.reloads.get_or_create(&[("result", result)]).inc();
    }
}

fn unix_time(clock: Clock) -> Gauge<f64, AtomicU64> {
    let gauge = Gauge::default();
    gauge.set(clock.wall().as_secs_f64());
    gauge
}
