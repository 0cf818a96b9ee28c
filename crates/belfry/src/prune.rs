//! `belfry prune`: what has outlived its lifetime is removed now.

use api::PruneAnswer;
use clap::Args;
use store::Removed;

use crate::client::Client;
use crate::output;

/// `belfry prune`
#[derive(Debug, Args)]
pub(crate) struct PruneArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Prunes, call by call, until nothing is left to do, and says what was removed.
pub(crate) fn run(args: &PruneArgs, client: &Client) -> anyhow::Result<()> {
    let mut total = PruneAnswer::default();
    while !total.done {
        let answer: PruneAnswer = client.post("/v1/prune", &())?;
        total.removed.add(&answer.removed);
        total.done = answer.done;
    }
    output::json_or(args.json, &total, || {
        let Removed { contents, recipients, outcomes, .. } = total.removed;
        let Removed { idempotency_keys, suppression_events, outbox_rejects, acts, lanes, .. } =
            total.removed;
        format!(
            "removed: contents of {contents} notifications, recipients of {recipients}, {outcomes} with their log; \
             {idempotency_keys} idempotency keys, {suppression_events} changes of the suppression list, \
             {outbox_rejects} rejected rows of the outbox, {acts} acts, {lanes} lanes"
        )
    })
}
