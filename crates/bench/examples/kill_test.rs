//! Kills the engine at random moments, many times: `kill_test BINARY ROUNDS SEED`.
//!
//! Each round has a fresh store. A round that breaks a promise ends the run, prints its seed, and leaves its
//! directory for a look.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: kill_test BINARY ROUNDS SEED";
    let binary = PathBuf::from(arguments.next().context(usage)?);
    let rounds: u64 = arguments.next().context(usage)?.parse().context(usage)?;
    let first_seed: u64 = arguments.next().context(usage)?.parse().context(usage)?;
    let mut out = std::io::stdout().lock();
    let (mut kills, mut duplicates, mut in_flight, mut in_doubt) = (0, 0, 0, 0);
    for seed in first_seed..first_seed + rounds {
        let directory = tempfile::Builder::new().prefix("belfry-kill-").tempdir()?;
        let survived = match bench::kill::round(&binary, directory.path(), seed) {
            Ok(survived) => survived,
            Err(error) => {
                let kept = directory.keep();
                return Err(
                    error.context(format!("seed {seed}; everything is in {}", kept.display()))
                );
            }
        };
        writeln!(out, "seed {seed}: {survived:?}")?;
        kills += u64::from(survived.kills);
        duplicates += survived.duplicates;
        in_flight += survived.in_flight;
        in_doubt += survived.in_doubt;
    }
    writeln!(
        out,
        "{rounds} rounds, {kills} kills: at_least_once lost 0, repeated {duplicates} of {in_flight} in flight; \
         at_most_once twice on the wire 0, in doubt {in_doubt}; every account balances"
    )?;
    Ok(())
}
