//! `belfry vapid-key`: makes the key pair of a Web Push channel, and prints it once.

use anyhow::anyhow;
use channel::webpush::VapidKey;

use crate::output;

/// Prints the pair. It goes to standard output and nowhere else.
pub(crate) fn run() -> anyhow::Result<()> {
    let made = VapidKey::generate().ok_or_else(|| anyhow!("the system has no random numbers"))?;
    output::print(&format!(
        "# The public key, for pages: pushManager.subscribe({{ userVisibleOnly: true, applicationServerKey: ... }}).\n\
         # Subscriptions belong to it: with another key they have to be made anew.\n\
         # {}\n\
         # The private key, for the table of the channel. Whoever has it can send in your name.\n\
         key = \"{}\"\n",
        made.public,
        made.private.expose(),
    ))
}
