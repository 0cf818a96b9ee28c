//! The feed before a whole pipeline, on one thread, under paused time: the rig is the one of the pipeline's own tests.
#![expect(clippy::unwrap_used, reason = "all of it is test code: a failure here fails the test")]

mod changes;
mod outcomes;

#[path = "../../../pipeline/tests/paused/rig.rs"]
#[expect(dead_code, reason = "the tests of the pipeline use the rest of it")]
mod rig;
#[path = "../../../pipeline/tests/paused/script.rs"]
#[expect(dead_code, reason = "the tests of the pipeline use the rest of it")]
mod script;

use std::time::Duration;

use rig::Rig;
use script::Script;

const MS: Duration = Duration::from_millis(1);

fn rig() -> Rig {
    Rig::new(Script::new(10 * MS, 100))
}
