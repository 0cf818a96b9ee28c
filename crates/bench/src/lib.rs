//! Workloads against real processes: what the demo, the kill test and the benchmark share.
//!
//! Everything here stands outside the engine. It starts the released binary as a user would, feeds it
//! through its command line, kills it, and counts at the provider: from the simulator's journal, never from
//! the engine's own counters.
//!
//! - [`kill`]: rounds of SIGKILL at random moments, and what must hold after each.
//! - [`process`]: the engine and the simulator as child processes.
//! - [`workload`]: who is told what, so that every recipient can be recognised in the journal.
//! - [`tally`]: the journal against the workload.
//! - [`trial`]: one run of all of it.

pub mod kill;
pub mod process;
pub mod tally;
pub mod trial;
pub mod workload;

pub use process::{Engine, EngineSettings, Simulator, SimulatorReady, Usage};
pub use tally::{Books, JournalTail, Tally};
pub use trial::{Audit, Finished, Import, Setup, Trial};
pub use workload::{Guarantee, Webhook, Workload};
