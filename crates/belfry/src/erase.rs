//! `belfry erase`: erases what is stored about a recipient.

use api::ErasureAnswer;
use clap::Args;
use notification::Name;

use crate::client::{Client, with_query};
use crate::exit::{CliError, FailureKind};
use crate::output;

/// `belfry erase`
#[derive(Debug, Args)]
pub(crate) struct EraseArgs {
    /// Device token, endpoint or address, byte for byte as it was sent to
    #[arg(value_name = "RECIPIENT", required_unless_present = "external_id")]
    to: Option<String>,
    /// Everything with this external id in its place
    #[arg(long, value_name = "ID", conflicts_with = "to")]
    external_id: Option<String>,
    /// Those of this tenant, with an operator's key [default: the key's]
    #[arg(long, value_name = "NAME")]
    tenant: Option<Name>,
    /// Leave it on the suppression list, so that it is not sent to again
    #[arg(long)]
    keep_suppressions: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Erases, call by call, and says what is left to do.
///
/// # Errors
/// When something is being sent to it just now, and must be erased afterwards.
pub(crate) fn run(args: &EraseArgs, client: &Client) -> anyhow::Result<()> {
    let mut total = ErasureAnswer::default();
    loop {
        let parameters = [
            ("to", args.to.as_deref()),
            ("external_id", args.external_id.as_deref()),
            ("tenant", args.tenant.as_ref().map(Name::as_str)),
            ("suppressions", args.keep_suppressions.then_some("false")),
            ("after", total.next.as_deref()),
        ];
        let answer: ErasureAnswer = client.delete(&with_query("/v1/recipients", &parameters))?;
        total = ErasureAnswer {
            erased: total.erased + answer.erased,
            cancelled: total.cancelled + answer.cancelled,
            under_way: total.under_way + answer.under_way,
            suppressions: total.suppressions + answer.suppressions,
            next: answer.next,
        };
        if total.next.is_none() {
            break;
        }
    }
    output::json_or(args.json, &total, || text(&total))?;
    if total.under_way > 0 {
        let message = format!(
            "{} notifications to it are being sent: ask again when they have ended",
            total.under_way
        );
        return Err(CliError::new(FailureKind::Failed, message).into());
    }
    Ok(())
}

fn text(total: &ErasureAnswer) -> String {
    let ErasureAnswer { erased, cancelled, suppressions, .. } = total;
    format!(
        "{erased} notifications erased, {cancelled} of which waited and are cancelled; taken off {suppressions} suppression \
         lists\nBackups and bytes that were overwritten have it still: docs/erasure.md says what to do about them"
    )
}
