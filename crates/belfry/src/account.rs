//! `belfry account`, and the account as other commands print it.

use std::fmt::{Result, Write as _};

use api::TenantAccount;
use clap::Args;
use notification::{Account, Name};
use store::ReadStore;

use crate::args::StoreArgs;
use crate::exit::{CliError, FailureKind};
use crate::listing::stored_tenant;
use crate::reader::{ReadSource, SOURCE_HELP};
use crate::{output, paint, reader};

/// `belfry account`
#[derive(Debug, Args)]
#[command(after_help = SOURCE_HELP)]
pub(crate) struct AccountArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// The tenant: by default the key's, and `default` where the store is read. Another one takes an operator's key
    #[arg(long, value_name = "TENANT")]
    tenant: Option<Name>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Prints it.
pub(crate) fn run(args: &AccountArgs, source: &ReadSource) -> anyhow::Result<()> {
    let account = match source {
        ReadSource::Engine(client) => {
            let of = args.tenant.iter().map(|tenant| format!("?tenant={tenant}"));
            client.get(&format!("/v1/account{}", of.collect::<String>()))?
        }
        ReadSource::Store(store) => {
            let tenant = stored_tenant(args.tenant.as_ref())?;
            let totals =
                async |reads: &dyn ReadStore| Ok(reads.tenant_totals(tenant.clone()).await?);
            let totals = reader::ask(store, totals)?;
            TenantAccount::new(&tenant, totals.ok_or_else(unknown)?)
        }
    };
    if args.json {
        return output::json(&account);
    }
    let mut text = format!("tenant     {:>12}\n", account.tenant);
    push_text(&account.account, &mut text)?;
    output::print(&text)
}

/// Appends a line for each count.
pub(crate) fn push_text(account: &Account, text: &mut String) -> Result {
    let accepted = [("accepted", account.accepted)];
    for (name, count) in accepted.into_iter().chain(account.standing()) {
        let line = format!("{:<10} {count:>12}", name.replace('_', " "));
        // A count of nothing asks for no look.
        let state = if count == 0 { "" } else { name };
        writeln!(text, "{}", paint::state(state, &line))?;
    }
    Ok(())
}

/// The account of a tenant in a line, without what it has none of: `shop: accepted 3, delivered 2, pending 1`.
pub(crate) fn to_line(account: &TenantAccount) -> String {
    let TenantAccount { tenant, account } = account;
    let standing = account.standing().into_iter().filter(|(_, count)| *count > 0);
    let standing = standing.map(|(name, count)| format!(", {} {count}", name.replace('_', " ")));
    format!("{tenant}: accepted {}{}", account.accepted, standing.collect::<String>())
}

/// No tenant has an account as long as something is counted without its tenant.
pub(crate) fn unknown() -> CliError {
    CliError::new(
        FailureKind::Failed,
        "an older version has counted for all tenants together: an engine of this version counts anew what each of them has, soon after its start",
    )
}
