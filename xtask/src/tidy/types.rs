//! The names of types: each means one thing in the workspace, but for parts that backends of one crate have in common.

use std::collections::{BTreeMap, BTreeSet};

use super::modules::Krate;

/// A name that several backends of a crate define, once in the folder of each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SharedName {
    pub(crate) krate: &'static str,
    pub(crate) name: &'static str,
    /// The one meaning that it has in all of them.
    pub(crate) meaning: &'static str,
}

/// The exceptions. One that excuses nothing is refused.
pub(crate) const SHARED_NAMES: &[SharedName] = &[
    shared("channel", "Settings", "the section of one kind of channel in the configuration"),
    shared("channel", "Advice", "the action that an answer asks for beside its verdict"),
    shared("store", "Options", "the options under which a store is opened"),
    shared("store", "Writer", "the write side of an open store"),
    shared("store", "WriterState", "the writer's memory of its database"),
    shared("store", "Transaction", "the writer's transaction under way"),
    shared("store", "Snapshot", "the database at one instant, for a reader"),
    shared("store", "AuditRows", "rows of an audit in order of batch, with the next one in hand"),
    shared("store", "WaitingBatch", "a batch of a broadcast that waits for its chunk"),
];

/// Place of a definition: its crate, the module below the crate's root, and its file.
type Definition<'a> = (&'a str, Option<&'a str>, &'a str);

/// One line for each name that is defined more than once, and for each exception that is not needed.
pub(crate) fn check(crates: &BTreeMap<String, Krate>, shared_names: &[SharedName]) -> Vec<String> {
    let defined_often: BTreeMap<&str, Vec<Definition<'_>>> =
        definitions(crates).into_iter().filter(|(_, places)| places.len() > 1).collect();
    let mut offences = Vec::new();
    for (name, places) in &defined_often {
        if !shared_names.iter().any(|shared| shared.name == *name && shared.covers(places)) {
            let files: Vec<&str> = places.iter().map(|(_, _, file)| *file).collect();
            offences.push(format!(
                "{}: the type name {name} has several meanings: rename all but one",
                files.join(", ")
            ));
        }
    }
    let is_idle = |shared: &&SharedName| !defined_often.contains_key(shared.name);
    offences.extend(shared_names.iter().filter(is_idle).map(|shared| {
        let SharedName { krate, name, meaning } = shared;
        format!("xtask/src/tidy/types.rs: {krate} has no backends with a {name}, {meaning}")
    }));
    offences
}

const fn shared(krate: &'static str, name: &'static str, meaning: &'static str) -> SharedName {
    SharedName { krate, name, meaning }
}

fn definitions(crates: &BTreeMap<String, Krate>) -> BTreeMap<&str, Vec<Definition<'_>>> {
    let mut definitions: BTreeMap<&str, Vec<Definition<'_>>> = BTreeMap::new();
    for (krate, Krate { modules, .. }) in crates {
        for (path, module) in modules {
            let room = path.first().map(String::as_str);
            for name in &module.types {
                definitions.entry(name).or_default().push((krate, room, &module.file));
            }
        }
    }
    definitions
}

// === impl SharedName ===

impl SharedName {
    /// Whether all of `places` are in this crate, each below a module of its own.
    fn covers(&self, places: &[Definition<'_>]) -> bool {
        let rooms: BTreeSet<&str> = places.iter().filter_map(|(_, room, _)| *room).collect();
        places.iter().all(|(krate, _, _)| *krate == self.krate) && rooms.len() == places.len()
    }
}
