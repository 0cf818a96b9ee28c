//! The dry run and the scripted double pass the suite under paused time.

use std::time::Duration;

use channel::Channel;
use channel::conformance::{Behaviour, TestedChannel, exercise};
use channel::double::{Double, Step};
use channel::dry_run::{DryRunChannel, Settings};
use flow::Clock;
use notification::{Bytes, Content};

struct DryRun;
struct Scripted;

fn content() -> Content {
    Content { payload: Bytes::from_static(b"{}"), options: Bytes::new(), fallback: None }
}

impl TestedChannel for DryRun {
    fn channel(&self, provider: Behaviour) -> Option<Box<dyn Channel>> {
        let latency = Duration::from_millis(5);
        let settings = Settings { latency, jitter: latency, ..Settings::default() };
        let channel = DryRunChannel::new(settings).ok()?;
        (provider == Behaviour::Accepts).then(|| Box::new(channel) as Box<dyn Channel>)
    }

    fn recipient(&self, _provider: Behaviour, number: u16) -> String {
        format!("somebody-{number}")
    }

    fn content(&self) -> Content {
        content()
    }
}

impl TestedChannel for Scripted {
    fn channel(&self, provider: Behaviour) -> Option<Box<dyn Channel>> {
        let double = Double::new();
        double.set_latency(Duration::from_millis(5));
        if provider == Behaviour::CutsOff {
            double.set_otherwise(Step::CutOff);
        }
        Some(Box::new(double))
    }

    fn recipient(&self, _provider: Behaviour, number: u16) -> String {
        format!("{number}@somewhere")
    }

    fn content(&self) -> Content {
        content()
    }
}

#[tokio::test(start_paused = true)]
async fn the_dry_run_is_a_channel() {
    exercise(&DryRun, Clock::starting_at(Duration::from_hours(500_000))).await;
}

#[tokio::test(start_paused = true)]
async fn the_double_is_a_channel() {
    exercise(&Scripted, Clock::starting_at(Duration::from_hours(500_000))).await;
}
