//! Two producers and three consumers under random faults, many times:
//! `cluster_kill_test BINARY postgres|rabbitmq|nats SEED ROUNDS`.
//!
//! Each round has fresh servers. A round that breaks a promise ends the run, prints its seed, and leaves its directory
//! for a look. The same seed draws the same faults at the same moments.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bench::cluster::Backing;
use bench::cluster::round::Round;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: cluster_kill_test BINARY postgres|rabbitmq|nats SEED ROUNDS";
    let binary = PathBuf::from(arguments.next().context(usage)?);
    let backing: Backing = arguments.next().context(usage)?.parse().context(usage)?;
    let first_seed: u64 = arguments.next().context(usage)?.parse().context(usage)?;
    let rounds: u64 = arguments.next().context(usage)?.parse().context(usage)?;
    let mut out = std::io::stdout().lock();
    let (mut faults, mut duplicates, mut claimed, mut in_doubt) = (0, 0, 0, 0);
    for seed in first_seed..first_seed + rounds {
        let directory = tempfile::Builder::new().prefix("belfry-cluster-kill-").tempdir()?;
        let round = Round {
            binary: binary.clone(),
            directory: directory.path().to_owned(),
            backing,
            seed,
            faults: 10,
            within: Duration::from_secs(25),
        };
        writeln!(out, "{backing:?}, seed {seed}:")?;
        for planned in round.plan() {
            writeln!(out, "  {planned}")?;
        }
        let survived = match round.run() {
            Ok(survived) => survived,
            Err(error) => {
                let kept = directory.keep();
                return Err(
                    error.context(format!("seed {seed}; everything is in {}", kept.display()))
                );
            }
        };
        writeln!(out, "  {survived:?}")?;
        faults += survived.faults;
        duplicates += survived.duplicates;
        claimed += survived.claimed;
        in_doubt += survived.in_doubt;
    }
    writeln!(
        out,
        "{rounds} rounds, {faults} faults: at_least_once lost 0, repeated {duplicates} of {claimed} claimed at the \
         faults; at_most_once twice on the wire 0, in doubt {in_doubt}; every account balances"
    )?;
    Ok(())
}
