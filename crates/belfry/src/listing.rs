//! Parameters that the lists of notifications and of broadcasts have in common.

use notification::Name;
use store::ListOrder;

use crate::args::{NamedArgs, ShownArgs};
use crate::client::with_query;

/// The path of a call for a page of a list: `own` are the parameters that this list alone has, `page` is the place to begin behind,
/// and the number of items.
pub(crate) fn list_path(
    path: &str,
    own: &[(&str, Option<&str>)],
    (named, shown): (&NamedArgs, &ShownArgs),
    (after, limit): (Option<&str>, usize),
) -> String {
    let (since, until) =
        (shown.since.map(|it| it.to_string()), shown.until.map(|it| it.to_string()));
    let limit = limit.to_string();
    let order = match shown.order() {
        ListOrder::NewestFirst => "newest",
        ListOrder::OldestFirst => "oldest",
    };
    let common = [
        ("external_id", named.external_id.as_deref()),
        ("tag", named.tag.as_deref()),
        ("key", named.key.as_deref()),
        ("since", since.as_deref()),
        ("until", until.as_deref()),
        ("order", Some(order)),
        ("after", after),
        ("limit", Some(limit.as_str())),
    ];
    with_query(path, &[own, &common].concat())
}

/// The tenant whose things are read from a store where `named` may be one: `default` without.
///
/// # Errors
/// None: `default` is a name.
pub(crate) fn stored_tenant(named: Option<&Name>) -> anyhow::Result<Name> {
    Ok(named.cloned().map_or_else(|| "default".parse(), Ok)?)
}
