//! `belfry api-key`: makes a key, prints it once, and prints what the configuration keeps of it.

use clap::Args;
use notification::Name;

use crate::output;

/// `belfry api-key`
#[derive(Debug, Args)]
pub(crate) struct ApiKeyArgs {
    /// Says in logs whose key it is
    pub(crate) name: Name,
    /// Whose notifications the caller sends and sees
    #[arg(long)]
    pub(crate) tenant: Name,
}

/// Prints the key and its table. The key goes to standard output and nowhere else.
pub(crate) fn run(args: &ApiKeyArgs) -> anyhow::Result<()> {
    let key = api::generate()?;
    output::print(&format!(
        "# The key, for the caller. It is kept nowhere and cannot be shown again.\n\
         # BELFRY_API_KEY={key}\n\
         # For the configuration of the engine:\n\
         [[server.keys]]\n\
         name = \"{}\"\n\
         tenant = \"{}\"\n\
         sha256 = \"{}\"\n",
        args.name,
        args.tenant,
        api::hash(&key)
    ))
}
