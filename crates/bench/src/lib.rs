//! Workloads against real processes: what the demo, the kill test and the benchmark share.
//!
//! Everything here stands outside the engine. It starts the released binary as a user would, feeds it
//! through its command line, kills it, and counts at the provider: from the simulator's journal, never from
//! the engine's own counters.
//!
//! - [`kill`]: rounds of SIGKILL at random moments, and what must hold after each.
//! - [`cluster`]: several engines on real servers, over links that break.
//! - [`process`]: the engine and the simulator as child processes.
//! - [`port`]: the port of an engine that is killed and started again.
//! - [`client`]: what a user asks an engine by its commands.
//! - [`caller`]: one caller of its API.
//! - [`workload`]: who is told what, so that every recipient can be recognised in the journal.
//! - [`tally`]: the journal against the workload.
//! - [`tenants`]: two tenants, and how long one of them waits.
//! - [`rate`]: how many in which second.
//! - [`usage`]: what processes use.
//! - [`trial`]: one run of all of it.
//! - [`rows`]: the rows of `belfry bench`, beside what others have [`published`].
//! - [`plan`]: what a rate needs, by the costs that rows have measured.
//! - [`report`]: the result of a row, for a program, a terminal, a slide, a browser.

pub mod affinity;
pub mod caller;
pub mod client;
pub mod cluster;
pub mod kill;
pub mod plan;
pub mod port;
pub mod process;
pub mod processor_share;
pub mod published;
pub mod rate;
pub mod report;
pub mod rows;
pub mod tally;
pub mod tenants;
pub mod trial;
pub mod usage;
pub mod workload;

pub use caller::LoadCaller;
pub use client::{AuditOutput, BenchClient};
pub use port::HeldPort;
pub use process::{
    EngineProcess, EngineRole, EngineSettings, KillGuard, SimulatorProcess, SimulatorReady,
};
pub use tally::{JournalBooks, JournalTail, Tally};
pub use trial::{Finished, ImportRun, Setup, Trial};
pub use usage::Usage;
pub use workload::{WebhookPayload, Workload, WorkloadGuarantee, token};
