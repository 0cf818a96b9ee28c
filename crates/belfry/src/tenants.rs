//! `belfry tenants`: the tenants that have anything, with their accounts.

use api::TenantAccount;
use clap::Args;
use notification::Name;
use store::{ReadStore, TenantPage};

use crate::args::StoreArgs;
use crate::client::with_query;
use crate::pages::{self, PrintedPart, ReadPage};
use crate::reader::{ReadSource, SOURCE_HELP, StoreReader};
use crate::{account, output};

/// `belfry tenants`
#[derive(Debug, Args)]
#[command(after_help = SOURCE_HELP)]
pub(crate) struct TenantsArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// How many at most [default: all]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// Go on behind this tenant, as the end of an earlier list showed it
    #[arg(long, value_name = "TENANT")]
    after: Option<Name>,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// Tenants read at once.
const PAGE_ITEMS: usize = 1_000;

/// Prints them, by name.
pub(crate) fn run(args: &TenantsArgs, source: &ReadSource) -> anyhow::Result<()> {
    let limit = args.limit.map_or(Ok(usize::MAX), usize::try_from)?;
    let part = PrintedPart { after: args.after.as_ref().map(Name::to_string), limit };
    let print = |tenant: TenantAccount| {
        output::json_or(args.json, &tenant, || output::plain(&account::to_line(&tenant)))
    };
    match source {
        ReadSource::Engine(client) => {
            let read = |after: Option<&str>, limit: usize| {
                let limit = limit.min(PAGE_ITEMS).to_string();
                client.get(&with_query("/v1/tenants", &[("after", after), ("limit", Some(&limit))]))
            };
            pages::print(part, read, print)
        }
        ReadSource::Store(store) => {
            let store = StoreReader::open(store)?;
            let read = |after: Option<&str>, limit: usize| {
                let after = after.map(str::parse).transpose()?;
                store.ask(async |reads| page(reads, after, limit.min(PAGE_ITEMS)).await)
            };
            pages::print(part, read, print)
        }
    }
}

/// A page of the store.
async fn page(
    reads: &dyn ReadStore,
    after: Option<Name>,
    limit: usize,
) -> anyhow::Result<ReadPage<TenantAccount>> {
    let page = reads.tenants(after, limit).await?;
    let TenantPage { items, next } = page.ok_or_else(account::unknown)?;
    let items = items.into_iter().map(|(tenant, account)| TenantAccount::new(&tenant, account));
    Ok(ReadPage { items: items.collect(), next: next.map(|tenant| tenant.to_string()) })
}
